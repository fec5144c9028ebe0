# Completion of toboggan(1) for bash. The commands are those that the tool names.
_toboggan()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
	local commands="status stats objects connections why purge deny warm log top probe bench help"
	local word command=

	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case " $commands " in
		*" $word "*)	command=$word; break ;;
		esac
	done
	case $prev in
	--control|-c|--request)	mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	esac
	if [[ -z $command ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$commands --control --json --help --version" -- "$cur")
		return
	fi
	case $command in
	objects|connections)	word="--limit --json" ;;
	why)		word="--accept-encoding --client --request --json" ;;
	purge)		word="--prefix --host --tag --all --json" ;;
	deny)		word="--for --remove --json" ;;
	log)		word="--host --tier --status --slow --path --limit --json" ;;
	top)		word="--interval --count --once --json" ;;
	help)		word=$commands ;;
	warm)		mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	*)		word=--json ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
}
complete -o filenames -F _toboggan toboggan
