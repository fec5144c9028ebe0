#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The configuration file: its grammar, messages about mistakes, and its effect."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap

folder = ""
FILES = {
    "good.types": "# of ours\n\ntext/x-a\n  text/x-b\t b  bb # two\r\ntext/x-c;q=\"1 2\" c c++",
    "nginx.types": "# of nginx\n\ntypes {\n    text/html html htm;\n}\n",
    "semicolon.types": "text/html html htm;\n",
}


def begin():
    global folder
    folder = tempfile.mkdtemp(prefix="tbg-")
    os.chmod(folder, 0o755)
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    shutil.copy(os.path.join(ktap.BUILD, "modules/hello.so"), folder)


def end():
    subprocess.run(["rm", "-rf", folder], check=True)


def check(text):
    """(exit status, stdout, stderr) of --check; {root} is a folder."""
    path = os.path.join(folder, "check.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("{root}", folder))
    r = subprocess.run([daemon.BINARY, "--check", path, "--listen", "127.0.0.1:0"],
                       capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=client.WAIT_S, check=False)
    return r.returncode, r.stdout, r.stderr


GOOD = (
    'root = "{root}"',
    "root = {root}\n",
    '\ufeffroot = "{root}"\n',
    "root = {root} index = ${TBG_OF_NOBODY:-it's} location / { expires = 1h }\n",
    'root = "{root}"\nlisten = "0.0.0.0:80"\nmemory = 8M\n',
    '#* stars\nroot = "{root}"\n#*** and more\n',
    'root = "{root}"\nlisten = {"0.0.0.0:80", "[::]:80"}\nlocation / { expires = 1h }\n',
    'host "a" { root = "{root}" }\nhost "*.a" { root = "{root}" default = yes }\n',
    'root = "{root}" # why\nhost a { location "/" { index = off  autoindex = on } }\n',
    'root = "{root}"\ntypes = {"text/x-a a", "text/x-b; charset=utf-8 b bb"}\n'
    'media-types = "/etc/mime.types"\n',
    'root = "{root}"\nmedia-types = "{root}/good.types"\ntypes = {}\n',
    'root = "{root}"\ntype "image/*" { expires = max }\n'
    'location "*.x" { type "text/css" { headers = {"A: b"} } }\n',
    'root = "{root}"\nheaders = {}\nindex = {"a", "b"}\nerror-page = "404 /x"\n',
    'root = "{root}"\nerror-page = {"404 /a", "403 /b"}\nlocation /c { error-page = "404 /c" }\n'
    'location /d { error-page = "403 404 /d" }\n',
    'root = "{root}"\nindex = {"...", "..a", ".a"}\n',
    'root = "{root}"\nuser = root\nindex = {off}\ncompress = off\ncache-control = "%s"\n' % (
        "x" * 150),
    'upstream = "http://127.0.0.1:1"\n',
    'root = "{root}"\nlocation /a { root = "{root}" module = "{root}/hello.so" }\n'
    'location /b { root = "{root}" cgi = "{root}" }\nlocation /c { root = "{root}" upstream = c }\n'
    'upstream c { server = unix:/x protocol = fastcgi }\n',
    'cgi = "{root}"\ncgi-cpu = 0\ncgi-memory = 0\ncgi-output = 0\ncgi-processes = 0\n',
    'root = "{root}"\nheaders = {"A: b"}\nlisten = "0.0.0.0:80"\nheaders += {"C: d", "E: f"}\n'
    'listen += {"[::]:80"}\n'
    'index += a\nheaders += "G: h"\nlocation / { headers = {"A: c"} headers += {} index = b }\n'
    'location /x { headers = {"A: b"} index = c }\n',
    'upstream = a\nupstream a { server = "127.0.0.1:1" }\n',
    'upstream = {"http://127.0.0.1:1", "http://127.0.0.1:2"}\nupstream += {"http://127.0.0.1:3"}\n',
    'upstream = upstream\nupstream upstream { server = "127.0.0.1:1" }\n'
    'host a { upstream = upstream }\n',
    'root = "{root}" location "/." { expires = 1h } location "/100%" { expires = 1h }\n',
    'index = upstream root = "{root}" headers = {"A: %s"}\n' % ("a" * 1900),
    'root = "{root}"\nupstream "a" { server = {"http://127.0.0.1:1", "unix:/x"} balance = '
    '"round-robin" }\n'
    'location /x { upstream = a }\nlocation /y { upstream = {"http://127.0.0.1:1", "unix:/y"} }\n',
    'root = "{root}" // it\'s\n/* "it\'s\n{ */ location /a { } //\n'
    '/**/ cache-control = "/* \\" //"\n',
    'root = {root}//. index = a#"\nmemory = "${NONE"}8M"\n// location "',
    'upstream=a # upstream x {\nupstream  "a"\n'
    '{ server = 127.0.0.1:1  protocol = "http"  keep = 1 }'.replace(
        "keep", "upstream-keep") + ' host x { upstream = {"a"} location /f { root = "{root}" } }\n',
)

SERVERS = ",".join(f'"127.0.0.1:{i}"' for i in range(1, 34))
# (text, line, what else the message must have)
BAD = (
    ('root = "/nonexistent/folder"', 1,
     ("root", "/nonexistent/folder", "No such file", "a folder")),
    ('root = "{root}/check.conf"', 1, ("root", "Not a directory", "a folder")),
    ('\n\nmemory = "lots"', 3, ("memory", "lots", "a size from 1M")),
    ('speed = 9', 1, ("speed", "accepted", "memory", "host", "error-page")),
    ('host a {\n root = "{root}"\n speed = 9 }', 3, ("speed", "accepted", "alias", "location")),
    ('host a {\n root = "{root}"\n location / {\n\n  alias = x } }', 5,
     ("alias", "accepted", "expires", "type")),
    ('type "text/css" {\n root = "{root}" }', 2, ("root", "accepted", "expires", "cache-control")),
    ('root = "{root}"\nlocation "/a" {\n\texpires = "soon"\n}', 3,
     ("expires", "soon", "a time such as 30d")),
    ('root = "{root}"\nlocation "a" {\n\texpires = 1\n}', 2,
     ("location", '"a"', "begins with a slash")),
    ('root = "{root}"\nlocation "**" { }', 2, ("location", '"**"', "begins with a slash")),
    ('root = "{root}"\nlocation "/a//b" { }', 2, ("location", '"/a//b"', "without //")),
    ('root = "{root}"\nlocation "=/x/../y" { }', 2, ("location", '"=/x/../y"', "/../")),
    ('root = "{root}"\ntype "text" {\n}', 2, ("type", '"text"', "text/html or image/*")),
    ('root = "{root}"\n\nhost "a b" {\n}', 3, ("host", '"a b"', "a host's name")),
    ('root = "{root}"\nhost a {\n}\nhost A {\n}', 4, ("host", '"A"', "each name once")),
    ('root = "{root}"\nhost a {\n}\nhost b {\n alias = {"c", "a."}\n}', 4,
     ('"b"', '"a."', "each name once")),
    ('root = "{root}"\nhost a {\n}\nhost a {\n}', 4, ("title", "'a'", "accepted")),
    ('root = "{root}"\nhost a { default = yes }\nhost b { default = yes }', 3,
     ('"b"', '"a"', "one default")),
    ('host a {\n index = x\n}', 1, ("a", "no root", "expected root")),
    ('root = "{root}"\nlocation /a {\n upstream = b\n}', 3,
     ("upstream", '"b"', "none of that name", "server")),
    ('root = "{root}"\nlocation /a {\n upstream = {b, c}\n}', 3,
     ("upstream", '"c"', "the name of an upstream")),
    ('root = "{root}"\nlocation /a {\n upstream = {"unix:/x", c}\n}', 3,
     ("upstream", '"c"', "the name of an upstream")),
    ('root = "{root}"\nlocation /a {\n upstream = "b c"\n}', 3,
     ("upstream", '"b c"', "the name of an upstream")),
    ('root = "{root}"\nlocation /a {\n upstream = unix:/x\n root = "{root}" }', 3,
     ("root and upstream are mutually exclusive in one scope", "one of them")),
    ('root = "{root}"\n\nupstream a {\n}', 3, ("upstream", '"a"', "no server", "expected server")),
    ('root = "{root}"\nupstream "a b" {\n server = unix:/x }', 2,
     ("upstream", '"a b"', "a name of letters")),
    ('root = "{root}"\nupstream a {\n server = "x y"\n}', 3, ("server", '"x y"', "HOST:PORT")),
    ('root = "{root}"\nupstream a {\n server = "http://10.0.0.300:1"\n}', 3,
     ("server", "10.0.0.300", ": expected HOST:PORT")),
    ('\nupstream = "http://10.0.0.300:80"', 2,
     ("upstream", "10.0.0.300:80", ": expected the name")),
    ('root = "{root}"\nupstream a {\n server = {%s} }' % SERVERS, 3,
     ("server", '"127.0.0.1:33"', "at most 32")),
    ('root = "{root}"\nlocation /a {\n upstream = {%s} }' % SERVERS.replace("127", "http://127"), 3,
     ("upstream", '"http://127.0.0.1:33"', "at most 32")),
    ('root = "{root}"\nlocation /a/ {\n module = {"{root}/x", "%s"} }' % ("x" * 2048), 3,
     ("module", "x" * 100, "at most 2048 bytes")),
    ('module = {"{root}/x", "%s"}\nlocation /a/ { }' % ("x" * 2048), 1,
     ("module", "x" * 100, "at most 2048 bytes")),
    ('root = "{root}"\nlocation /a/ {\n module = "{root}/none" }', 3,
     ("module", "/none", "No such file", "a shared object")),
    ('root = "{root}"\nlocation /a/ {\n module = "{root}/check.conf" }', 3,
     ("module", "/check.conf", "no shared object", "a shared object")),
    ('root = "{root}"\nupstream a {\n server = unix:/x\n protocol = gopher }', 4,
     ("protocol", "gopher", "http")),
    ('root = "{root}"\nupstream a {\n server = unix:/x\n balance = best }', 4,
     ("balance", "best", "least")),
    ('root = "{root}"\nupstream a {\n speed = 9 }', 3,
     ("speed", "accepted", "server", "balance", "health-path")),
    ('root = "{root}"\nhost b {\n upstream a { server = unix:/x }\n}', 3, ("accepted",)),
    ('root = "{root}"\nupstream a { server = unix:/x }\nupstream a { server = unix:/x }', 3,
     ("title", "'a'", "accepted")),
    ('host a { root = "{root}" }\nlocation /b {\n}', 2,
     ("location", '"/b"', "expected it in a host")),
    ('root = "{root}"\nheaders = {"A: b",\n "Content-Length: 1"}', 3,
     ("headers", "Content-Length: 1", '"Name: value"')),
    ('root = "{root}"\nheaders = {"content-location: /x"}', 2,
     ("headers", "content-location: /x", '"Name: value"')),
    ('root = "{root}"\nheaders = {"A"}', 2, ("headers", '"A"', '"Name: value"')),
    ('root = "{root}"\nerror-page = {"404 /a", "40 /b"}', 2,
     ("error-page", "40 /b", "statuses from 400")),
    ('root = "{root}"\nerror-page = {"404 /a",\n "403 404 /b"}', 3,
     ("error-page", "403 404 /b", "each once")),
    ('root = "{root}"\nerror-page = "500 500 /a"', 2, ("error-page", "500 500 /a", "each once")),
    ('root = "{root}"\nlocation /a {\n error-page = "404 /a"\n error-page += "404 /b"\n}', 4,
     ("error-page", "404 /b", "each once")),
    ('root = "{root}"\nlocation "/in/" { cgi = "{root}" }\nerror-page = "404 /./in/x"', 3,
     ("error-page", "404 /./in/x", "without //")),
    ('root = "{root}"\nerror-page = "404 //in/x"', 2, ("error-page", "404 //in/x", "without //")),
    ('root = "{root}"\nerror-page = "404 /a/../x"', 2, ("error-page", "404 /a/../x", "without //")),
    ('root = "{root}"\nerror-page = "404 /err/"', 2,
     ("error-page", "404 /err/", "the path of a file")),
    ('root = "{root}"\nerror-page = "404 /err/.."', 2,
     ("error-page", "404 /err/..", "the path of a file")),
    ('root = "{root}"\nindex = {"a", ".."}', 2, ("index", '".."', "without a slash")),
    ('root = "{root}"\nindex = "."', 2, ("index", '"."', "without a slash")),
    ('root = "{root}"\nindex = ""', 2, ("index", '""', "without a slash")),
    ('root = "{root}"\nupstream a {\n server = unix:/x\n script-index = ".." }', 4,
     ("script-index", '".."', "a program")),
    ('root = "{root}"\ncookies = "maybe"', 2, ("cookies", "maybe", "pass or ignore")),
    ('root = "{root}"\nautoindex = 2', 2, ("autoindex", '"2"', "on or off")),
    ('root = "{root}"\nindex = {"a/b"}', 2, ("index", "a/b", "without a slash")),
    ('root = "{root}"\nuser = "nosuchuser"', 2, ("user", "nosuchuser", "a user that there is")),
    ('root = "{root}"\ncompress = {off, gzip}', 2, ("compress", '"gzip"', "off alone")),
    ('root = "{root}"\ncompress = {gzip, off}', 2, ("compress", '"off"', "off alone")),
    ('root = "{root}"\nindex = {"off","x"}', 2, ("index", '"x"', "off alone")),
    ('root = "{root}"\nindex = {"x","off"}', 2, ("index", '"off"', "off alone")),
    ('root = "{root}"\ncache-control = "%s"' % ("x" * 151), 2,
     ("cache-control", "at most 150 bytes")),
    ('root = "{root}"\nbody-max = big', 2, ("body-max", "big", "a size up to")),
    ('root = "{root}"\ntypes = {"text x"}', 2,
     ("types", "text x", "a media type and its suffixes")),
    ('root = "{root}"\ntypes = {"text/x .md"}', 2, ("types", "text/x .md", "without a dot")),
    ('root = "{root}"\ntypes = {"text/x md;"}', 2,
     ("types", "text/x md;", "a media type and its suffixes")),
    ('root = "{root}"\ntypes = {"text/x; charset md"}', 2, ("types", "charset=utf-8 html")),
    ('root = "{root}"\ntypes = {"text/x; charset=utf-8"}', 2, ("types", "charset=utf-8 html")),
    ('root = "{root}"\nmedia-types = "/nonexistent/x"', 2,
     ("media-types", "/nonexistent/x", "No such file", "a file of")),
    ('root = "{root}"\nmedia-types = "{root}"', 2,
     ("media-types", "not a regular file", "a file of")),
    ('root = "{root}"\nmedia-types = "/dev/null"', 2,
     ("media-types", "/dev/null", "not a regular file", "a file of")),
    ('root = "{root}"\nmedia-types = "{root}/nginx.types"', 2,
     ("nginx.types", 'line 3, "types {"', '"type suffix ..." lines')),
    ('root = "{root}"\nmedia-types = "{root}/semicolon.types"', 2,
     ("semicolon.types", "line 1, ", '"type suffix ..." lines')),
    ('root = "{root}"\nlisten = {"0.0.0.0:80", "80"}', 2, ("listen", '"80"', "ADDR:PORT")),
    ('root = "{root}"\nhost a {\n location / {\n  expires = 1\n', 3,
     ("never closed", "expected }")),
    ('root = "{root}"\n}', 2, ("accepted",)),
    ('root = "/a\nb\nc"\n', 3, ("root", "/a?b?c", "a folder")),
    ('root = "{root}"\nheaders = {"%s"}' % ("x" * 5000), 2,
     ("headers", "x" * 100, '"Name: value"')),
    ('root = "{root}"\n\nroot = "/"', 3, ('root "/"', "given twice")),
    ('root = "{root}"\nmemory = 8M\nmemory = 8M', 3, ("memory", "given twice")),
    ('root = "{root}"\nlisten = {"0.0.0.0:80"}\nlisten = {"0.0.0.0:81"}', 3,
     ("listen", "0.0.0.0:81", "given twice", "+=")),
    ('root = "{root}"\nheaders = {"A: b"}\nheaders = {"C: d"}', 3,
     ("headers", "C: d", "given twice", "+=")),
    ('root = "{root}"\nheaders = "A: b"\nheaders = "A: b"', 3, ("headers", "A: b", "given twice")),
    ('root = "{root}"\nindex = {a, b}\nautoindex = on\nindex = {c, d}', 4,
     ("index", '"c"', "given twice")),
    ('root = "{root}"\nlocation / {\n expires = 1\n expires = 2 }', 4,
     ("expires", '"2"', "given twice")),
    ('upstream = a\nupstream a {\n server = unix:/x\n server = unix:/y }', 4,
     ("server", "unix:/y", "given twice")),
    ('root = "{root}"\nmemory = "8M\0"\n', 2, ("zero byte", "expected text")),
    ('root = "{root}', 1, ("quote", "never closed")),
    ('root = "{root}"\n"\nmemory = zzz', 2, ('quote "', "never closed")),
    ('root = "{root}"\nmemory = 8M\n"memory = zzz', 3, ('quote "', "never closed")),
    ("root = '{root}'\n\n 'a\\'\n", 3, ("quote '", "never closed")),
    ('root = "{root}"\nindex = "a\\\\"b"', 2, ('quote "', "never closed")),
    ('root = "{root}"\n/* limits\nmemory = zzz', 2, ("comment", "never closed", "*/")),
    ('root = "{root}" /*/ limits\nmemory = zzz', 1, ("comment", "never closed", "*/")),
    ('root = "{root}"\n/* it\'s */ location /a { // it\'s {\n # it\'s\n', 2,
     ("never closed", "expected }")),
    ('root = "{root}"\n/* two\nlines */ // and\nmemory = zzz', 4,
     ("memory", "zzz", "a size from 1M")),
    ('root = "{root}"\nheaders = {"A: %s", "B: %s", "C: %s"}' % (("x" * 900,) * 3), 2,
     ("outside of all sections: ", "bytes of headers", "at most 2048")),
    ('root = "{root}"\nheaders = {"A: b"}\nhost a {\n\n headers = {"A: %s"}\n expires = 1h\n}' % (
        "x" * 2048), 5,
     ("a: ", "bytes of headers", "at most 2048")),
    ('root = {root}\n' + "".join(f'location "/{i}" {{ }}\n' for i in range(1001)), 1002,
     ("outside of all sections", "1001", "at most 1000")),
    ('root = "{root}"\nhost a {\n alias = "a.b"\n headers = {"A: a.b", "B: b"}\n}\nhost "A.B" {\n'
     ' headers = {"A: A.B", "B: b"}\n}', 6,
     ("host", '"A.B"', "each name once")),
    ('host "a" {\n index = x\n\n headers = {"A: a"}\n location /b { root = "{root}"\n'
     ' expires = 1h }\n}', 1, ("a", "no root", "expected root")),
    ('root = "{root}"\ntype "*/*" {\n}', 2, ("type", '"*/*"', "text/html or image/*")),
    ('root = "{root}"\ntype "te*t/*" {\n}', 2, ("type", '"te*t/*"', "text/html or image/*")),
    ('root = "{root}"\ntype "text/*l" {\n}', 2, ("type", '"text/*l"', "text/html or image/*")),
    ('upstream upstream {\n server = unix:/x }\nuser = upstream\nroot = "{root}"', 3,
     ("user", '"upstream"', "a user that there is")),
)


def t_good_files_are_reported_as_good():
    for text in GOOD:
        code, out, err = check(text)
        assert code == 0 and not err and out.endswith(": good\n") and out.count("\n") == 1, \
               (text, code, out, err)


def t_every_mistake_is_one_line_with_file_line_value_and_what_is_accepted():
    for text, line, says in BAD:
        code, out, err = check(text)
        assert code == 2 and not out and err.count("\n") == 1, (text[:200], code, out, err)
        where = f"{folder}/check.conf:" + (f"{line}: " if line else "")
        assert err.startswith("toboggand: ") and where in err, (text[:200], err)
        for word in says:
            assert word in err, (text[:200], word, err)


# A typing error, and what it was meant to be; "": nothing is near.
ERRORS = (("memroy = 8M", "memory"), ("lisen = x", "listen"), ("hots a { }", "host"),
          ("body_max = 1", "body-max"), ("Memory = 8M", "memory"), ("rot = x", "root"),
          ("inlcude(x)", "include"), ("time-header = 1", ""), ("x = 1", ""))


def t_a_typing_error_has_a_suggestion():
    for text, meant in ERRORS:
        code, _, err = check('root = "{root}"\n' + text)
        assert code == 2 and "check.conf:2: " in err and "accepted" in err, (text, err)
        assert (f"did you mean {meant}? " in err) if meant else "did you mean" not in err, \
               (text, err)
    for word, meant in (("--memroy", "--memory"), ("--lsiten", "--listen"),
                        ("--conifg", "--config"), ("--verison", "--version"),
                        ("--server", ""), ("--speed", "")):
        for words in ([word, "x"], [word + "=x"], [word]):
            r = subprocess.run([daemon.BINARY, *words], capture_output=True, text=True,
                               timeout=client.WAIT_S, check=False)
            assert r.returncode == 2 and f"toboggand: {word}: unknown option; " in r.stderr, r
            assert (f"did you mean {meant}? " in r.stderr) if meant else "did you mean" not in \
                   r.stderr, r


# Settings in a scope that does not have them, and those that do.
MISPLACED = (('server = "http://a:1"', "in an upstream section"),
             ("protocol = http", "in an upstream section"),
             ("alias = b", "in a host section"),
             ("host a {\nmemory = 8M }", "outside of sections"),
             ("host a {\nhost b { } }", "outside of sections"),
             ("type a/b {\nlocation / { } }", "outside of sections, in a host section"),
             ("upstream a {\nroot = x }",
              "outside of sections, in a host section, in a location section"))


def t_a_setting_in_the_wrong_scope_is_reported_with_its_scopes():
    for text, scopes in MISPLACED:
        code, _, err = check('root = "{root}"\n' + text)
        line = 2 + text.count("\n")
        assert code == 2 and f"check.conf:{line}: " in err and \
               f"; it is allowed {scopes}; accepted here: " in err, (text, err)


def included(main, files):
    """Like check(), with files beside the configuration."""
    top = os.path.join(folder, "in[c]")         # a name that would be a pattern
    os.makedirs(top, exist_ok=True)
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
        with open(os.path.join(top, name), "w", encoding="utf-8") as f:
            f.write(text.replace("{root}", folder))
    path = os.path.join(top, "main.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(main.replace("{root}", folder))
    r = subprocess.run([daemon.BINARY, "--check", path, "--listen", "127.0.0.1:0"],
                       capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=client.WAIT_S, check=False)
    shutil.rmtree(top)
    return r.returncode, r.stdout, r.stderr, top


HOST = 'host {name} {{ root = "{{root}}" }}\n'


def t_files_are_included_where_they_are_named():
    good = (
        ('root = "{root}"\ninclude("a.conf")\n', {"a.conf": "memory = 8M\n"}),
        ('include("a.conf")', {"a.conf": 'root = "{root}"'}),
        ('include ( "conf.d/*.conf" )\n',
         {"conf.d/a.conf": HOST.format(name="a"), "conf.d/b.conf": HOST.format(name="b"),
                                           "conf.d/c.old": "never read"}),
        ('root = "{root}"\ninclude("none.d/*.conf")\n', {}),
        ('root = "{root}"\nhost a { include("in.conf") location / { include("in.conf") } }\n',
         {"in.conf": "expires = 1h"}),
        ('include("sub/a.conf")',
         {"sub/a.conf": 'include("b.conf")', "sub/b.conf": 'root = "{root}"'}),
        ('root = "{root}" index = {"include", "b"} include(a.conf) # include("c.conf")\n',
         {"a.conf": "# nothing"}),
        ('root = "{root}"\nindex = include\n', {}),
    )
    for main, files in good:
        code, out, err, top = included(main, files)
        assert (code, out, err) == (0, f"{top}/main.conf: good\n", ""), (main, code, out, err)
    # in the order of their names: the first host answers for all
    code, _, err, _ = included('include("*.conf.in")',
                               {"b.conf.in": HOST.format(name="same"),
                                "a.conf.in": "\n" + HOST.format(name="same")})
    assert code == 2 and "in[c]/b.conf.in:1: " in err, err


def t_a_fault_is_reported_where_it_was_made():
    rows = (
        ('root = "{root}"\ninclude("a.conf")\nmemory = lots', {"a.conf": "\n\n"}, "main.conf:3: ",
         "lots"),
        ('root = "{root}"\ninclude("a.conf") memory = lots', {"a.conf": "\n\n"}, "main.conf:2: ",
         "lots"),
        ('root = "{root}"\ninclude("a.conf")', {"a.conf": "\n\nmemory = lots"}, "a.conf:3: ",
         "lots"),
        ('include("d/*")\nroot = "{root}"', {"d/a": "\n\n", "d/b": "\nspeed = 1\n"}, "d/b:2: ",
         "speed"),
        ('\nhost a {\n include("a.conf")\n root = "{root}" }\n',
         {"a.conf": "\n alias = {a,\n b}\n root = {root}"}, "main.conf:4: ", "given twice"),
        ('include("a.conf")\nhost a { root = "{root}" }',
         {"a.conf": '\nhost a. {\n root = "{root}" }\n'}, "main.conf:2: ", "each name once"),
        ('include("a.conf")', {"a.conf": '\nhost a {\n index = x }\n'}, "a.conf:2: ", "no root"),
        ('root = "{root}" include("a.conf") }', {"a.conf": "host a {\n"}, "a.conf:1: ",
         "never closed"),
        ('root = "{root}" host a { include("a.conf")', {"a.conf": "\n}\n"}, "a.conf:2: ",
         "closes nothing"),
        ('root = "{root}" include("a.conf") "', {"a.conf": "\n /* x"}, "main.conf:1: ",
         "never closed"),
        ('root = "{root}" include("a.conf")', {"a.conf": "\n /* x"}, "a.conf:2: ", "never closed"),
        ('\ninclude("none.conf")', {}, "main.conf:2: ", "No such file"),
        ('\ninclude("a.conf")', {"a.conf/x": ""}, "main.conf:2: ", 'a.conf": Is a directory; '),
        ('include("a.conf")', {"a.conf": '\n\ninclude("b/*")', "b/c/x": ""}, "a.conf:3: ",
         'b/c": Is a directory; '),
        ('\ninclude("main.conf")', {}, "main.conf:2: ", "files that do not include themselves"),
        ('\ninclude("a.conf")', {"a.conf": "root = a\0b"}, "a.conf:1: ", "zero byte"),
    )
    for main, files, where, says in rows:
        code, out, err, top = included(main, files)
        assert code == 2 and not out and err.count("\n") == 1, (main, code, out, err)
        assert err.startswith(f"toboggand: {top}/{where}") and says in err, (main, err)


def t_file_that_is_not_there_is_named():
    r = subprocess.run([daemon.BINARY, "--check", "/nonexistent/x"], capture_output=True, text=True,
                       timeout=client.WAIT_S, check=False)
    assert r.returncode == 2 and "/nonexistent/x" in r.stderr and "No such file" in r.stderr, r


def t_file_that_is_too_long_is_reported_with_the_limit():
    code, _, err = check('root = "{root}"\n#' + "x" * (1 << 26))
    assert code == 2 and "check.conf" in err and \
           "too long; expected at most 67108864 bytes" in err, err


def t_a_list_of_many_clients_has_room_in_a_file():
    """The daemon takes a million; 30,000 long ones are more than a mebibyte."""
    listed = ",\n".join(f"2001:0db8:0000:0000:0000:0000:0000:{x:04x}" for x in range(30000))
    code, out, err = check(f'root = "{{root}}"\ndeny = {{{listed}}}\n')
    assert len(listed) > 1 << 20 and code == 0 and "good" in out, err


def t_root_on_the_command_line_wins():
    with conf.Conf('root = "/"\n') as d:
        d.write("a.txt", b"x")
        with client.Client(d.address) as c:
            assert c.get("/a.txt").status == 404
    d = conf.Conf('root = "/"\n')
    d.options += ["--root", d.root]
    with d:
        d.write("a.txt", b"x")
        with client.Client(d.address) as c:
            assert c.get("/a.txt").body == b"x"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
