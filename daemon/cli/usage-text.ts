/** Turns commander's usage errors into one-line messages. */

import type { Command, CommanderError } from 'commander';
import { listed } from '#base/listed';
import { didYouMean } from '../console/closest.ts';
import { oneLine } from '../console/failure.ts';

/** The error in the command line `words`, and the `--help` that explains it. */
export function usageText(
  error: CommanderError,
  words: readonly string[],
  program: Command,
): string {
  const { command, path } = namedCommand(words, program);
  const help = `see \`${path} --help\``;
  if (error.code === 'commander.help') {
    if (command === program) return `missing command; ${help}`;
    const names = command.commands.map((each) => each.name());
    return `missing subcommand: ${listed(names, 'or')}; ${help}`;
  }
  return `${reasonOf(error)}; ${help}`;
}

/** The error, without a pointer to `--help`. */
export function reasonOf(error: CommanderError): string {
  const text = oneLine(error.message)
    .replace(/^error: /, '')
    .replace(/\.$/, '')
    .replace(/\. Expected (\d+) arguments? but got (\d+)$/, ': expected $1, got $2');
  return invalidValue(text) ?? text;
}

/** The innermost command named by `words`, and its invocation. */
function namedCommand(
  words: readonly string[],
  program: Command,
): { readonly command: Command; readonly path: string } {
  let command = program;
  let path = program.name();
  for (const word of words) {
    const next = command.commands.find((each) => each.name() === word);
    if (next === undefined) break;
    command = next;
    path += ` ${word}`;
  }
  return { command, path };
}

/** `invalid value 'y' for --x: must be …`, from commander's sentence about a bad value. */
function invalidValue(text: string): string | undefined {
  const option = /^option '(?<flags>[^']+)' argument '(?<value>.*?)' is invalid\. (?<rule>.+)$/s;
  const argument =
    /^command-argument value '(?<value>.*)' is invalid for argument '(?<name>[^']+)'\. (?<rule>.+)$/s;
  const { flags, name, value, rule } = (option.exec(text) ?? argument.exec(text))?.groups ?? {};
  if (rule === undefined) return undefined;
  const choices = /^Allowed choices are (.+)$/.exec(rule)?.[1]?.split(', ');
  const reason =
    choices === undefined
      ? rule
      : `must be ${listed(choices, 'or')}${didYouMean(value ?? '', choices)}`;
  return `invalid value '${value}' for ${name ?? optionName(flags ?? '')}: ${reason}`;
}

/** `--write` of `-w, --write <FILE>`. */
function optionName(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags.split(' ', 1)[0] ?? flags;
}
