/** A command line as data, for output generated from the same source as `--help`. */
import type { Command, Option } from 'commander';

/** Names that only running daemons know: instances, and devices of a daemon. */
export type NameSource = 'instances' | 'devices';

export interface OptionFacts {
  /** In the form of the help: `-w, --write <FILE>`. */
  readonly flags: string;
  /** The names alone: `-w`, `--write`. */
  readonly names: readonly string[];
  /** The name of its value, without brackets; undefined for a switch. */
  readonly value: string | undefined;
  readonly text: string;
  /** The permitted values, if there are few. */
  readonly choices: readonly string[];
  /** The kind of names that its value accepts. */
  readonly source: NameSource | undefined;
}

interface ArgumentFacts {
  readonly term: string;
  readonly text: string;
  /** The permitted values, if there are few. */
  readonly choices: readonly string[];
  readonly source: NameSource | undefined;
}

export interface CommandFacts {
  /** The command path: `iwarpd`, `fault`, `add`. */
  readonly words: readonly string[];
  readonly summary: string;
  /** In the form of the usage line: `<KIND>`, `[ID]`. */
  readonly arguments: readonly ArgumentFacts[];
  readonly options: readonly OptionFacts[];
  readonly commands: readonly CommandFacts[];
}

/** The facts of `command` and everything below it. */
export function commandFacts(command: Command, above: readonly string[] = []): CommandFacts {
  const words = [...above, command.name()];
  const help = command.createHelp();
  return {
    words,
    summary: command.description(),
    arguments: help.visibleArguments(command).map((argument) => ({
      term: `${help.argumentTerm(argument)}${argument.variadic ? '...' : ''}`,
      text: argument.description,
      choices: argument.argChoices ?? [],
      source: argument.name() === 'INSTANCE' ? 'instances' : undefined,
    })),
    options: help.visibleOptions(command).map((option) => ({
      flags: option.flags,
      names: [option.short, option.long].filter((name) => name !== undefined),
      value: /[<[]([^>\]]+)[>\]]/.exec(option.flags)?.[1],
      text: help.optionDescription(option),
      choices: choicesOf(option),
      source: sourceOf(option),
    })),
    commands: help
      .visibleCommands(command)
      .filter((each) => each.name() !== 'help')
      .map((each) => commandFacts(each, words)),
  };
}

/** Choices that commander checks, or those in the name of the value: `<in|out>`. */
function choicesOf({ argChoices, flags }: Option): readonly string[] {
  if (argChoices !== undefined) return argChoices;
  const listed = /<([a-z0-9]+(?:\|[a-z0-9]+)+)>/.exec(flags)?.[1];
  return listed?.split('|') ?? [];
}

/** Options that describe a new device are called `--device`, too. */
function sourceOf({ long, flags }: Option): NameSource | undefined {
  if (long === '--instance') return 'instances';
  return long === '--device' && flags.endsWith('<NAME>') ? 'devices' : undefined;
}

/** `facts` and all its subcommands, in the order of the help. */
export function everyCommand(facts: CommandFacts): readonly CommandFacts[] {
  return [facts, ...facts.commands.flatMap(everyCommand)];
}
