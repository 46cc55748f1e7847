/** A strict reader of the text format of Prometheus, version 0.0.4: throws at the first bad line. */

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*';
const LABEL = '[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\\\\n]|\\\\["\\\\n])*"';
const VALUE = '(?:[-+]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?Inf|NaN)';
const HELP = new RegExp(`^# HELP (${NAME}) (?:[^\\\\]|\\\\[\\\\n])*$`);
const TYPE = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram|summary|untyped)$`);
const SAMPLE = new RegExp(`^(${NAME})(\\{${LABEL}(?:,${LABEL})*\\})? (${VALUE})(?: [0-9]+)?$`);

/** Returns the values by name and labels, spelled as in the text. */
export function parseMetrics(text: string): Map<string, number> {
  if (!text.endsWith('\n')) throw new Error('the last line does not end with a newline');
  const samples = new Map<string, number>();
  const types = new Map<string, string>();
  const helps = new Set<string>();
  /** Lines of one metric are contiguous: a finished metric must not appear again. */
  const over = new Set<string>();
  let current = '';
  for (const line of text.slice(0, -1).split('\n')) {
    if (line === '') continue;
    const [, helped] = HELP.exec(line) ?? [];
    const [, typed, type = ''] = TYPE.exec(line) ?? [];
    const [, sampled, labels = '', value = ''] = SAMPLE.exec(line) ?? [];
    // Samples of a histogram carry a suffix after its name.
    const [, whole = ''] = /^(.*)_(?:bucket|sum|count)$/.exec(sampled ?? '') ?? [];
    const name = helped ?? typed ?? (types.get(whole) === 'histogram' ? whole : sampled);
    if (name === undefined) throw new Error(`malformed line: ${line}`);
    if (name !== current) {
      if (over.has(name)) throw new Error(`lines of ${name} are apart`);
      over.add(name);
      current = name;
    }
    if (helped !== undefined) once(helps, helped);
    else if (typed !== undefined) {
      if (types.has(typed)) throw new Error(`duplicate type of ${typed}`);
      types.set(typed, type);
    } else {
      const key = `${sampled}${labels}`;
      if (samples.has(key)) throw new Error(`duplicate sample of ${key}`);
      if (!types.has(name) || !helps.has(name)) throw new Error(`no TYPE or HELP of ${name}`);
      if (types.get(name) === 'counter' && !(Number(value) >= 0)) {
        throw new Error(`negative counter: ${line}`);
      }
      // promtool's rules: counters end in _total, other metrics do not.
      if ((types.get(name) === 'counter') !== name.endsWith('_total')) {
        throw new Error(`${name} must end in _total if it is a counter, and only then`);
      }
      samples.set(key, Number(value));
    }
  }
  return samples;
}

function once(seen: Set<string>, name: string): void {
  if (seen.has(name)) throw new Error(`two HELP lines of ${name}`);
  seen.add(name);
}
