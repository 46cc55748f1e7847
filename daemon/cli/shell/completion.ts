/** Completion scripts for bash, zsh and fish, generated from the same data as `--help`. */
import { type CommandFacts, everyCommand, type OptionFacts } from './command-facts.ts';
import type { Shell } from './shells.ts';

/** Value names that denote a file or a directory. */
const PATHS = ['FILE', 'PATH', 'DIR'];

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

/** Words that may follow a command's name: its subcommands, the values of its arguments, its options. */
function candidates({ commands, arguments: given, options }: CommandFacts): string[] {
  return [
    ...commands.map(({ words }) => words.at(-1) ?? ''),
    ...given.flatMap(({ choices }) => choices),
    ...options.flatMap(({ names }) => names.filter((name) => name.startsWith('--'))),
  ];
}

function takesPath({ value }: OptionFacts): boolean {
  return value !== undefined && PATHS.includes(value);
}

function bashScript(program: CommandFacts): string {
  const cases = everyCommand(program).map((each) => {
    return `    '${each.words.slice(1).join(' ')}') words='${candidates(each).join(' ')}' ;;`;
  });
  const values = everyCommand(program).flatMap((each) =>
    each.options
      .filter(({ value }) => value !== undefined)
      .flatMap((option) =>
        option.names.map((name) => {
          const place = [...each.words.slice(1), name].join(' ');
          const kind = takesPath(option) ? 'file' : 'word';
          return `    '${place}') valued=${kind} words='${option.choices.join(' ')}' ;;`;
        }),
      ),
  );
  return `# bash completion for iwarpd; source it, or put it where bash-completion looks.
_iwarpd() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  local path= word words= valued= index
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
  [[ $valued == file ]] || COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Arguments that name files, and the program of \`run\`.
  [[ \${#COMPREPLY[@]} -gt 0 || $valued == word ]] || compopt -o default 2>/dev/null
}
complete -F _iwarpd iwarpd
`;
}

function zshScript(program: CommandFacts): string {
  const functions = everyCommand(program).map((each) => {
    const name = `_${each.words.join('_').replaceAll('-', '_')}`;
    const specs = each.options.map((option) => `    ${zshOption(option)}`);
    if (each.commands.length === 0) {
      const values = each.arguments.flatMap(({ choices }) => choices);
      const action = values.length > 0 ? `(${values.join(' ')})` : '_files';
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
      : `:${value.replaceAll(':', '\\:')}:${takesPath(option) ? '_files' : choices.length > 0 ? `(${choices.join(' ')})` : ' '}`;
  const body = quoted(`[${brackets}]${action}`);
  const [first = '', second] = names;
  if (second === undefined) return `${first}${body}`;
  return `${quoted(`(${names.join(' ')})`)}{${names.join(',')}}${body}`;
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
    return [...below, ...values, ...each.options.map((option) => fishOption(here, option))];
  });
  return `# fish completion for iwarpd; put it into ~/.config/fish/completions/iwarpd.fish.
${lines.join('\n')}
`;
}

/** True where the words so far name this command and no subcommand of it. */
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
  const { value, choices } = option;
  const argument =
    value === undefined
      ? []
      : takesPath(option)
        ? ['-r', '-F']
        : ['-x', ...(choices.length > 0 ? [`-a ${quoted(choices.join(' '))}`] : [])];
  return [
    'complete -c iwarpd',
    `-n ${quoted(condition)}`,
    ...words,
    ...argument,
    `-d ${fishQuoted(option.text)}`,
  ].join(' ');
}

/** Quoted for a POSIX shell and zsh, in single quotes. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Quoted for fish, in single quotes, which allow two escapes. */
function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
