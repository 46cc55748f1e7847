/** Completion scripts for bash, zsh and fish, generated from the same data as `--help`. */
import {
  type CommandFacts,
  everyCommand,
  type NameSource,
  type OptionFacts,
} from './command-facts.ts';
import type { Shell } from './shells.ts';

/** Names of values that are files or directories. */
const PATHS = ['FILE', 'PATH', 'DIR'];

/** The command that lists the names in the first column of its table. */
const LISTED_BY: Readonly<Record<NameSource, string>> = { instances: 'list', devices: 'devices' };

/** Prints these names; a shell expands what it gets, so names with special characters are skipped. */
const FIRST_COLUMN = "awk 'NR > 1 && $1 ~ /^[A-Za-z0-9._-]+$/ { print $1 }'";

/** The script, for the shell to source. */
export function completionScript(shell: Shell, program: CommandFacts): string {
  switch (shell) {
    case 'bash':
      return bashScript(program);
    case 'zsh':
      return zshScript(program);
    case 'fish':
      return fishScript(program);
    default:
      return shell satisfies never;
  }
}

/** Words that may follow a command: its subcommands, the values of its arguments, its options. */
function candidates({ commands, arguments: given, options }: CommandFacts): string[] {
  return [
    ...commands.map(({ words }) => words.at(-1) ?? ''),
    ...given.flatMap(({ choices }) => choices),
    ...options.flatMap(({ names }) => names.filter((name) => name.startsWith('--'))),
  ];
}

/** The source of an argument's names. */
function argumentSource({ arguments: given }: CommandFacts): NameSource | undefined {
  return given.find(({ source }) => source !== undefined)?.source;
}

function takesPath({ value }: OptionFacts): boolean {
  return value !== undefined && PATHS.includes(value);
}

function bashScript(program: CommandFacts): string {
  const cases = everyCommand(program).map((each) => {
    const words = `words='${candidates(each).join(' ')}'`;
    return `    '${each.words.slice(1).join(' ')}') ${words}${bashSource(argumentSource(each))} ;;`;
  });
  const values = everyCommand(program).flatMap((each) =>
    each.options
      .filter(({ value }) => value !== undefined)
      .flatMap((option) =>
        option.names.map((name) => {
          const place = [...each.words.slice(1), name].join(' ');
          const kind = takesPath(option) ? 'file' : 'word';
          const words = `words='${option.choices.join(' ')}'${bashSource(option.source)}`;
          return `    '${place}') valued=${kind} ${words} ;;`;
        }),
      ),
  );
  return `# bash completion for iwarpd; source it, or put it where bash-completion looks.
_iwarpd_names() {
  local index place=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$1 \${COMP_WORDS[index]}" in
    'devices --socket' | 'devices --instance') place=("\${COMP_WORDS[@]:index:2}") ;;
    esac
  done
  "\${COMP_WORDS[0]}" "$1" "\${place[@]}" 2>/dev/null | ${FIRST_COLUMN}
}
_iwarpd() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  local path= word words= valued= names= index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=\${COMP_WORDS[index]}
    # What follows -- belongs to the program of \`run\`.
    if [[ $word == -- ]]; then
      compopt -o default 2>/dev/null
      return
    fi
    case "$path\${path:+ }$word" in
${everyCommand(program)
  .slice(1)
  .map(({ words }) => `      '${words.slice(1).join(' ')}') path="$path\${path:+ }$word" ;;`)
  .join('\n')}
    esac
  done
  case "$path\${path:+ }$previous" in
${values.join('\n')}
  esac
  [[ $valued ]] || case $path in
${cases.join('\n')}
  esac
  [[ ! $names ]] || words+=" $(_iwarpd_names "$names")"
  [[ $valued == file ]] || COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Arguments that name files, and the program of \`run\`.
  [[ \${#COMPREPLY[@]} -gt 0 || $valued == word ]] || compopt -o default 2>/dev/null
}
complete -F _iwarpd iwarpd
`;
}

/** The command that lists the names of a source, in the script's variable. */
function bashSource(source: NameSource | undefined): string {
  return source === undefined ? '' : ` names=${LISTED_BY[source]}`;
}

function zshScript(program: CommandFacts): string {
  const functions = everyCommand(program).map((each) => {
    const name = `_${each.words.join('_').replaceAll('-', '_')}`;
    const specs = each.options.map((option) => `    ${zshOption(option)}`);
    if (each.commands.length === 0) {
      const values = each.arguments.flatMap(({ choices }) => choices);
      const action = zshNames(argumentSource(each)) ?? zshValues(values) ?? '_files';
      const rest = each.arguments.length > 0 ? [`    '*:argument:${action}'`] : [];
      return `${name}() {\n  _arguments -s \\\n${[...specs, ...rest].join(' \\\n')}\n}`;
    }
    const listed = each.commands
      .map(({ words, summary }) => `    ${quoted(`${words.at(-1)}:${summary}`)}`)
      .join('\n');
    const branches = each.commands
      .map(({ words }) => `    ${words.at(-1)}) _${words.join('_').replaceAll('-', '_')} ;;`)
      .join('\n');
    return `${name}() {
  local -a commands=(
${listed}
  )
  local line state
  _arguments -C \\
${[...specs, `    '1: :->command'`, `    '*:: :->rest'`].join(' \\\n')}
  case $state in
  command) _describe command commands ;;
  rest)
    case $line[1] in
${branches}
    esac ;;
  esac
}`;
  });
  return `#compdef iwarpd
# zsh completion for iwarpd; put it in a directory of $fpath as _iwarpd, or source it.
_iwarpd_names() {
  local -a place found
  local at=\${words[(I)--(socket|instance)]}
  [[ $1 == devices && $at -gt 0 && $at -lt $((CURRENT - 1)) ]] && place=($words[at] $words[at+1])
  found=(\${(f)"$(iwarpd $1 $place 2>/dev/null | ${FIRST_COLUMN})"})
  compadd -a found
}
${functions.join('\n')}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _iwarpd "$@"
else
  compdef _iwarpd iwarpd
fi
`;
}

function zshOption(option: OptionFacts): string {
  const { names, text, value, choices } = option;
  const brackets = text.replaceAll('[', '(').replaceAll(']', ')').replaceAll(':', '\\:');
  const action =
    value === undefined
      ? ''
      : `:${value.replaceAll(':', '\\:')}:${takesPath(option) ? '_files' : (zshNames(option.source) ?? zshValues(choices) ?? ' ')}`;
  const body = quoted(`[${brackets}]${action}`);
  const [first = '', second] = names;
  if (second === undefined) return `${first}${body}`;
  return `${quoted(`(${names.join(' ')})`)}{${names.join(',')}}${body}`;
}

function zshValues(choices: readonly string[]): string | undefined {
  return choices.length === 0 ? undefined : `(${choices.join(' ')})`;
}

function zshNames(source: NameSource | undefined): string | undefined {
  return source === undefined ? undefined : `{_iwarpd_names ${LISTED_BY[source]}}`;
}

function fishScript(program: CommandFacts): string {
  const lines = everyCommand(program).flatMap((each) => {
    const path = each.words.slice(1);
    const here = fishCondition(path, each);
    const below = each.commands.map(({ words, summary }) => {
      return `complete -c iwarpd -n ${quoted(here)} -f -a ${words.at(-1)} -d ${fishQuoted(summary)}`;
    });
    const values = each.arguments
      .filter(({ choices }) => choices.length > 0)
      .map(({ choices }) => {
        return `complete -c iwarpd -n ${quoted(here)} -f -a ${quoted(choices.join(' '))}`;
      });
    const source = argumentSource(each);
    const names =
      source === undefined
        ? []
        : [`complete -c iwarpd -n ${quoted(here)} -f -a ${quoted(fishNames(source))}`];
    return [
      ...below,
      ...values,
      ...names,
      ...each.options.map((option) => fishOption(here, option)),
    ];
  });
  return `# fish completion for iwarpd; put it into ~/.config/fish/completions/iwarpd.fish.
function __iwarpd_names
  set -l words (commandline -opc)
  set -l place
  if test $argv[1] = devices
    for name in --socket --instance
      set -l at (contains -i -- $name $words)
      and set place $name $words[(math $at + 1)]
    end
  end
  iwarpd $argv[1] $place 2>/dev/null | ${FIRST_COLUMN}
end
${lines.join('\n')}
`;
}

/** True if the words so far name this command and none of its subcommands. */
function fishCondition(path: readonly string[], { commands }: CommandFacts): string {
  const seen = path.map((word) => `__fish_seen_subcommand_from ${word}`);
  const names = commands.map(({ words }) => words.at(-1)).join(' ');
  if (names !== '') seen.push(`not __fish_seen_subcommand_from ${names}`);
  return seen.join('; and ');
}

function fishOption(condition: string, option: OptionFacts): string {
  const words = option.names.map((name) => {
    if (name.startsWith('--')) return `-l ${name.slice(2)}`;
    return name.length === 2 ? `-s ${name.slice(1)}` : `-o ${name.slice(1)}`;
  });
  const { value } = option;
  const argument =
    value === undefined ? [] : takesPath(option) ? ['-r', '-F'] : ['-x', ...fishValues(option)];
  return [
    'complete -c iwarpd',
    `-n ${quoted(condition)}`,
    ...words,
    ...argument,
    `-d ${fishQuoted(option.text)}`,
  ].join(' ');
}

function fishValues({ choices, source }: OptionFacts): string[] {
  if (source !== undefined) return [`-a ${quoted(fishNames(source))}`];
  return choices.length > 0 ? [`-a ${quoted(choices.join(' '))}`] : [];
}

function fishNames(source: NameSource): string {
  return `(__iwarpd_names ${LISTED_BY[source]})`;
}

/** Quoted for a POSIX shell and zsh, in single quotes. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Quoted for fish, in single quotes, which allow two escapes. */
function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
