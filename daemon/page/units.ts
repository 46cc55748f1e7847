/** Formats numbers with units. */

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P'] as const;

/** Three digits and an SI prefix: `12.3 M`; the caller appends the unit. */
export function si(value: number): string {
  let scaled = Math.abs(value);
  let power = 0;
  // 999.95 would be printed as 1000.
  while (scaled >= 999.5 && power < PREFIXES.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  const digits = scaled >= 99.95 || (power === 0 && Number.isInteger(scaled)) ? 0 : 1;
  const fixed = scaled >= 9.995 || digits === 0 ? scaled.toFixed(digits) : trimmed(scaled);
  return `${value < 0 ? '-' : ''}${fixed} ${PREFIXES[power] ?? ''}`;
}

/** Two decimals, without trailing zeros. */
function trimmed(value: number): string {
  return value.toFixed(2).replace(/\.?0+$/, '');
}

/** Bytes per second: `12.3 MB/s`. */
export function byteRate(bytesPerSecond: number): string {
  return `${si(bytesPerSecond)}B/s`;
}

/** Events per second: `4.5 k/s`. */
export function rate(perSecond: number): string {
  return `${si(perSecond).trim()}/s`;
}

/** Bytes of memory, with binary prefixes: `64 KiB`. */
export function size(bytes: number): string {
  let scaled = bytes;
  let power = 0;
  while (scaled >= 1024 && power < PREFIXES.length - 1) {
    scaled /= 1024;
    power += 1;
  }
  const unit = power === 0 ? 'B' : `${PREFIXES[power]?.toUpperCase()}iB`;
  return `${power === 0 ? scaled : trimmed(scaled)} ${unit}`;
}

const GROUPS = new Intl.NumberFormat('en-US');

/** An integer with grouped digits: `1,234,567`. */
export function whole(value: number): string {
  return GROUPS.format(value);
}

/** `3 d 4 h`, `12 min 5 s`: the two largest units of a duration. */
export function duration(seconds: number): string {
  const parts: readonly (readonly [number, string])[] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [Math.floor(seconds) % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([count], index) => index === 0 || count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}

/** Time between two events: `85 µs`, `1.23 ms`, `2.5 s`. */
export function interval(micros: number): string {
  if (micros < 1000) return `${trimmed(Math.round(micros * 10) / 10)} µs`;
  if (micros < 1_000_000) return `${trimmed(micros / 1000)} ms`;
  return `${trimmed(micros / 1_000_000)} s`;
}

/** Time since something, to the microsecond: `85 µs`, `2.774 ms`. */
export function sinceText(micros: number): string {
  return micros < 1000 ? `${micros} µs` : `${(micros / 1000).toFixed(3)} ms`;
}

/** The local time of day, to the microsecond. */
export function timeOfDay(micros: number): string {
  const date = new Date(micros / 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  const fraction = String(Math.floor(micros % 1_000_000)).padStart(6, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${fraction}`;
}

/** 16 hex digits as ibv_devinfo shows a GUID: `0227:c97b:6152:c23e`. */
export function guid(digits: string): string {
  return digits.replace(/(.{4})(?!$)/g, '$1:');
}

/** `192.0.2.7:7174`, `[2001:db8::1]:7174`. */
export function socketAddress({ address, port }: { address: string; port: number }): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** `one client`, `2 clients`. */
export function counted(count: number, singular: string, plural = `${singular}s`): string {
  return `${whole(count)} ${count === 1 ? singular : plural}`;
}
