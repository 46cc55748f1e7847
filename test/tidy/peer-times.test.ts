/** Compares `daemon/PEER-TIMES.md` with the constants in the sources, in both directions. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { exponentMicros } from '#daemon/roce/cm/cm-times';
import { readSource } from './source-graph.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PAGE = 'daemon/PEER-TIMES.md';
/** Folders whose code waits for peers. */
const FOLDERS = [
  'daemon/roce/cm',
  'daemon/roce/transport',
  'daemon/roce/wire',
  'daemon/iwarp/cm',
  'daemon/iwarp/engine',
  'daemon/iwarp/sctp',
  'daemon/host',
  'daemon/host/links',
  'daemon/host/roce',
  'daemon/host/sctp',
  'native-bridge/usrsctp',
  'verbs-api',
  'verbs-api/native',
  'verbs-api/rpcrdma',
  'verbs-api/rpcrdma/core',
  'verbs-api/nfs/tcp',
];
/** Times in these folders for which a peer cannot keep us waiting, with their meaning. */
const OWN: Readonly<Record<string, string>> = {
  'daemon/roce/cm/cm-times.ts: UNIT_MICROS': 'a unit',
  'daemon/roce/wire/syndrome.ts: TIMEOUT_UNIT_MICROS': 'a unit',
  'daemon/roce/transport/pacing.ts: PATIENCE_MIN_MICROS': 'a lower bound',
  'daemon/roce/transport/pacing.ts: PATIENCE_FIRST_MICROS': 'before a peer has said anything',
  'daemon/iwarp/cm/kept-ports.ts: PORT_KEPT_MICROS': 'for the own program',
  'daemon/iwarp/cm/dial-patience.ts: PAUSE_FIRST_MICROS': 'how often the own program dials',
  'daemon/iwarp/cm/dial-patience.ts: PAUSE_LAST_MICROS': 'how often the own program dials',
  'daemon/host/roce/refused-requests.ts: PAUSE_FIRST_MICROS': 'how often the own program dials',
  'daemon/host/roce/refused-requests.ts: PAUSE_LAST_MICROS': 'how often the own program dials',
  'daemon/host/device-config.ts: nudgeDelayMicros': 'when a silent peer is nudged',
  'daemon/host/event-loop.ts: TIMER_SLACK_MICROS': 'of the own clock',
  'daemon/host/links/faulty-link.ts: TIMER_SLACK_MICROS': 'of the own clock',
  'daemon/host/host-faults.ts: MICROS_PER_MS': 'a unit',
  'daemon/host/links/system.ts: FOREVER_MS': 'a timer that never fires',
  'daemon/host/errored-queue-pairs.ts: INTERVAL_MICROS': 'of looks at own queue pairs',
  'daemon/host/roce/udp-link.ts: REOPEN_MICROS': 'of attempts to open own sockets',
  'daemon/host/errored-queue-pairs.ts: IDLE_INTERVAL_MICROS': 'of looks at own queue pairs',
  'daemon/host/roce/address-watch.ts: INTERVAL_MICROS': 'of looks at own addresses',
  'daemon/host/roce/packet-faults.ts: REORDER_MICROS': 'of an injected fault',
  'daemon/host/roce/udp-link.ts: RETRY_MICROS': 'of an own socket that is full',
  'daemon/host/sctp/kernel-transport.ts: ACCEPT_RETRY_MICROS': 'of an own lack of descriptors',
  'daemon/host/sctp/paths.ts: IDLE_MICROS': 'of a table of paths',
  'daemon/host/sctp/sctp-faults.ts: REORDER_MICROS': 'of an injected fault',
  'daemon/host/sctp/sctp-stack.ts: BUSY_MICROS': 'of the own clock',
  'daemon/host/sctp/sctp-stack.ts: BUSY_TICK_MICROS': 'of the own clock',
  'daemon/host/sctp/sctp-stack.ts: IDLE_TICK_MICROS': 'of the own clock',
  'daemon/host/sctp/sctp-stack.ts: RETRY_MICROS': 'of an own socket that is full',
  'daemon/host/sctp/shared-associations.ts: IDLE_MICROS': 'of associations that we dialled',
  'daemon/host/sctp/usrsctp-association.ts: DOUBT_HEARTBEAT_MS':
    'how often a peer in doubt is asked',
  'daemon/host/sctp/usrsctp-association.ts: DOUBT_MICROS': 'how long it is asked more often',
  'verbs-api/native/completion-queue.ts: SHARE_MS': 'of the own event loop',
  'verbs-api/nfs/tcp/tcp-rpc-client.ts: TIMEOUT_MS': 'what the own program may ask for',
  'verbs-api/rpcrdma/core/requester.ts: reconnectDelayMs': 'how often the own program dials',
};

interface Row {
  readonly wire: string;
  readonly atMost: string;
  readonly name: string;
  readonly file: string;
}

function rows(): readonly Row[] {
  const pattern = /^\| *([^|]+?) *\|[^|]+\| *([^|]+?) *\| *`(\w+)` in `([\w./-]+)` *\|$/gm;
  return [...readSource(PAGE).matchAll(pattern)].map(
    ([, wire = '', atMost = '', name = '', file = '']) => ({ wire, atMost, name, file }),
  );
}

/** The value of a constant, or of a field of defaults, in the source; in seconds. */
function secondsOf(name: string, source: string): number {
  const declared =
    source.match(new RegExp(`\\bconst ${name}(?:: [^=\\n]+)? = ([^;]+);`))?.[1] ??
    source.match(new RegExp(`^ +${name}: ([^,]+),`, 'm'))?.[1] ??
    '';
  const exponent = declared.match(/^exponentMicros\((\w+)\)$/)?.[1];
  if (exponent !== undefined) {
    if (/^\d+$/.test(exponent)) return exponentMicros(Number(exponent)) / 1e6;
    return secondsOf(exponent, source);
  }
  const number = Number(declared.match(/[\d_.]+/)?.[0].replaceAll('_', ''));
  if (/_?micros$/i.test(name)) return number / 1e6;
  if (/_?ms$/i.test(name)) return number / 1000;
  // An exponent, as on the wire.
  return exponentMicros(number) / 1e6;
}

/** Names of times that a source declares. */
function timesIn(source: string): readonly string[] {
  const constants = [...source.matchAll(/^(?:export )?const ([A-Z_]*(?:MICROS|_MS))\b/gm)];
  const fields = [...source.matchAll(/^ +(\w+(?:Micros|Ms)): [\d_]+,/gm)];
  return [...constants, ...fields].map(([, name = '']) => name);
}

describe('the table of times that peers can keep us waiting', () => {
  it('has rows for every wire', () => {
    const wires = new Set(rows().flatMap(({ wire }) => wire.split(', ')));
    expect([...wires].sort()).toEqual(['NFS', 'RPC', 'RoCE', 'SCTP', 'TCP', 'all', 'real NICs']);
    const lines = readSource(PAGE).split('\n');
    // The header of the table has no constant.
    expect(rows()).toHaveLength(lines.filter((line) => /^\| [^-]/.test(line)).length - 1);
  });

  it.each(rows())('states the value of $name in $file', ({ name, file, atMost }) => {
    const [number = '', unit = ''] = atMost.split(' ');
    expect(unit).toBe('s');
    const seconds = secondsOf(name, readSource(file));
    const rounding = seconds > 10 ? 0.5 : 0.05;
    expect(Math.abs(seconds - Number(number))).toBeLessThan(rounding);
  });

  it('lists every time in the folders that wait for peers, except our own', () => {
    const listed = rows().map(({ name, file }) => `${file}: ${name}`);
    const declared = FOLDERS.flatMap((folder) =>
      readdirSync(join(ROOT, folder))
        .filter((file) => file.endsWith('.ts'))
        .map((file) => `${folder}/${file}`)
        .flatMap((file) => timesIn(readSource(file)).map((name) => `${file}: ${name}`)),
    );
    const known = new Set([...listed, ...Object.keys(OWN)]);
    expect(declared.filter((time) => !known.has(time))).toEqual([]);
    expect(Object.keys(OWN).filter((time) => !declared.includes(time))).toEqual([]);
  });
});
