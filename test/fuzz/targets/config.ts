/** Configuration files and command-line words: accepted, or refused with a typed error. */
import { CommanderError } from 'commander';
import { addressBytes, canonicalAddress } from '#base/address';
import { isVerbsError } from '#contract/verbs/errors';
import {
  collectDevice,
  collectQpNumber,
  parseAddress,
  parseAnyPort,
  parseFpduSize,
  parseHttpPlace,
  parseMpaRevision,
} from '#daemon/cli/arguments';
import { parseRemotePath } from '#daemon/cli/nfs/nfs-files';
import { parseTraceKinds } from '#daemon/cli/traffic/trace-kinds';
import { CommandFailure, failureText } from '#daemon/console/failure';
import { parseDaemonConfig } from '#daemon/main/config';
import type { Draws } from '#test/support/draws';
import { mutated } from '#test/support/mutate';
import { canary, claim, type FuzzTarget, type Outcome } from '../target.ts';

const WORDS = [
  'a=127.0.0.1,127.0.0.2',
  'iwarp0=10.0.0.1,fe80::1%eth0',
  'b=native:siw0',
  'c',
  '127.0.0.1:7470',
  '[::1]:0',
  'localhost:65535',
  'emss',
  'large',
  '4096',
  '1',
  '2',
  'wqe,cqe,fpdu,end',
  '127.0.0.1:/export/file',
  '[fe80::1]:/x',
  '::ffff:10.0.0.1',
  '2001:db8:0:0:1::8',
  '16777215',
];
const ENCODED_WORDS = WORDS.map((word) => Buffer.from(word, 'latin1'));
const PARSERS: readonly ((text: string) => unknown)[] = [
  (text) => collectDevice(text, undefined),
  (text) => collectDevice(text, [{ name: 'a', addresses: ['127.0.0.1'] }]),
  (text) => collectQpNumber(text, [1]),
  parseAddress,
  parseAnyPort,
  parseFpduSize,
  parseHttpPlace,
  parseMpaRevision,
  parseRemotePath,
  parseTraceKinds,
  parseCanonical,
];

/** Checks that an address has one canonical text. */
function parseCanonical(text: string): void {
  const canonical = canonicalAddress(text);
  if (canonical === undefined) return;
  claim(canonicalAddress(canonical) === canonical, `${canonical} is not canonical`);
  claim([4, 16].includes(addressBytes(canonical).length), `${canonical} has odd bytes`);
}

const CONFIGS: readonly unknown[] = [
  {},
  { socketPath: '/tmp/x/iwarpd.sock', logLevel: 'debug', stopTimeoutMs: 10 },
  {
    devices: [
      { name: 'a', addresses: ['127.0.0.1'], wire: { crcRequested: false, fpduSize: 'large' } },
      { name: 'b', addresses: ['::1'], profile: { maxQp: 4, irdMax: 2 } },
      { name: 'c', addresses: ['127.0.0.9'], lowerLayer: 'sctp' },
    ],
    memoryTiers: ['shared', 'agent'],
    loopback: 'tcp',
  },
  { devices: [{ name: 'n', native: 'siw0' }], native: true, nativeDevices: [] },
  {
    rails: {
      count: 2,
      names: 'mlx5_%d',
      interfaces: 'ens%d',
      addresses: ['127.0.1.1', '127.0.2.1'],
      pci: ['0000:3b:00.0', '0000:86:00.0'],
      numa: [0, -1],
      rate: 400,
      identity: 'connectx7',
    },
  },
  { quotas: { objects: { qp: 1 }, sharedBytes: 4096, pinnedBytes: 1, queueEntries: 2 } },
  { http: { address: '127.0.0.1', port: 0, token: 'x'.repeat(20), hostNames: ['a'] } },
  { allowOtherUsers: true, unreadMaxBytes: 1, connectionsMax: 2, greetingTimeoutMs: 3 },
];
const ENCODED_CONFIGS = CONFIGS.map((config) => Buffer.from(JSON.stringify(config)));
const ODD_VALUES: readonly unknown[] = [
  null,
  -1,
  0.5,
  1e300,
  2 ** 53,
  '',
  'x'.repeat(5000),
  [],
  {},
  true,
  [null],
  { __proto__: null },
  '\u0000',
  '127.0.0.1',
];

/** Replaces, removes or adds a value of the tree. */
function changed(value: unknown, draws: Draws): unknown {
  if (typeof value !== 'object' || value === null || draws.oneIn(6)) return draws.pick(ODD_VALUES);
  if (Array.isArray(value)) {
    const copy: unknown[] = [...value];
    if (draws.oneIn(3)) copy.push(draws.pick(ODD_VALUES));
    const at = draws.below(Math.max(1, copy.length));
    copy[at] = changed(copy[at], draws);
    return copy;
  }
  const fields = Object.entries(value);
  if (fields.length === 0 || draws.oneIn(4)) {
    const key = draws.pick(['devices', 'http', 'token', 'name', 'x', 'quotas', 'native', '']);
    return { ...value, [key]: draws.pick(ODD_VALUES) };
  }
  const [key, field] = draws.pick(fields);
  return { ...value, [key]: changed(field, draws) };
}

function refusedOrDone(parse: () => unknown): Outcome {
  try {
    parse();
    return 'understood';
  } catch (error) {
    const typed =
      isVerbsError(error) || error instanceof CommanderError || error instanceof CommandFailure;
    if (!typed) throw error;
    claim(/^[^\n]+$/.test(failureText(error)), 'an error of several lines');
    return 'refused';
  }
}

export const configText: FuzzTarget = {
  name: 'config-text',
  about: 'configuration files and words of the command line',
  batchInputs: 10_000,
  weight: 20_000,
  smokeInputs: 6_000,
  // An address parser that throws an untyped error.
  canary: canary(20_000, String.prototype, 'split', function (split, separator, limit) {
    if (String(separator) === '%' && this.startsWith(':')) throw new RangeError('planted');
    return split(separator, limit);
  }),
  open: () => ({
    run(draws) {
      if (draws.oneIn(2)) {
        const input = mutated(draws.pick(ENCODED_WORDS), ENCODED_WORDS, draws, draws.below(4));
        const text = Buffer.from(input).toString('latin1');
        const parser = draws.below(PARSERS.length);
        if (draws.recording) draws.show(`parser ${parser} ${JSON.stringify(text)}`);
        return refusedOrDone(() => PARSERS[parser]?.(text));
      }
      let options: unknown;
      if (draws.oneIn(2)) options = changed(draws.pick(CONFIGS), draws);
      else {
        const corpus = ENCODED_CONFIGS;
        const text = Buffer.from(mutated(draws.pick(corpus), corpus, draws, draws.below(3)));
        try {
          options = JSON.parse(text.toString('utf8'));
        } catch {
          return 'no JSON';
        }
      }
      if (draws.recording) draws.show(JSON.stringify(options));
      return refusedOrDone(() => parseDaemonConfig(options, {}));
    },
    close: () => undefined,
  }),
};
