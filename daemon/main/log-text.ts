/** A log line in text format: `12:34:56.789 warn  a request broke  kind=http status=500`. */

/** Names of pino's level numbers. */
const LEVELS: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};
const LEVEL_WIDTH = 5;
/** Fields not shown as `name=value`. */
const SHOWN = ['level', 'time', 'msg'];

/** Converts one line of pino's JSON to text, in local time. */
export function logText(line: string): string {
  const record = JSON.parse(line) as Record<string, unknown>;
  const level = LEVELS[Number(record['level'])] ?? String(record['level']);
  const fields = Object.entries(record)
    .filter(([name]) => !SHOWN.includes(name))
    .map(([name, value]) => `${name}=${valueText(value)}`);
  const head = `${clockText(Number(record['time']))} ${level.padEnd(LEVEL_WIDTH)}`;
  return `${[`${head} ${printable(String(record['msg'] ?? ''))}`, ...fields].join('  ')}\n`;
}

function clockText(time: number): string {
  const date = new Date(time);
  const two = (part: number) => String(part).padStart(2, '0');
  const millis = String(date.getMilliseconds()).padStart(3, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

/** Plain words are printed unchanged; values with spaces or structure as JSON. */
function valueText(value: unknown): string {
  if (typeof value === 'string' && /^[\w.:/@[\]%+-]+$/.test(value)) return value;
  return printable(JSON.stringify(value));
}

/**
 * Escapes control characters: programs choose their names and peers their texts, and a terminal
 * must not obey them.
 */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => {
    const short = JSON.stringify(character).slice(1, -1);
    return short === character ? `\\u00${character.charCodeAt(0).toString(16)}` : short;
  });
}
