#compdef toboggan
# Completion of toboggan(1) for zsh.
_arguments \
	'--control[control socket]:path:_files' \
	'--json[answers as JSON]' \
	'--help[help]' '--version[version]' \
	'1:command:((status\:"what the daemon is"
		stats\:"what it has done"
		objects\:"what is cached"
		connections\:"the clients that are connected"
		why\:"which tier would answer"
		purge\:"remove objects from the cache"
		deny\:"refuse clients"
		warm\:"put files into the cache"
		log\:"requests as they are answered"
		top\:"rates as they happen"
		probe\:"what this kernel can do"
		bench\:"measure beside other servers"
		help\:"more about a command"))' \
	'*:argument:_files'
