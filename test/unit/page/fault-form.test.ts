import { describe, expect, it } from 'vitest';
import { FAULT_KINDS, type FaultKind } from '#contract/protocol/faults';
import { faultSpec } from '#daemon/control/fault-schemas';
import { faultFields, faultOf, faultText, KIND_GROUPS } from '#daemon/page/fault-form';

const KINDS = Object.keys(FAULT_KINDS) as FaultKind[];
const ALWAYS = { name: 'always', value: '', seed: '' };

/** A valid answer for each field. */
const ANSWERS: Readonly<Record<string, string>> = {
  device: 'left',
  qp: '5',
  peer: '127.0.0.1:7174',
  pid: '77',
  direction: 'out',
  ms: '20',
  bytesPerSecond: '1000',
  bytes: '3',
  afterBytes: '0',
  ird: '1',
  ord: '2',
};

describe('the form for faults', () => {
  it('offers every kind once', () => {
    const offered = KIND_GROUPS.flatMap(([, kinds]) => kinds);
    expect([...offered].sort()).toEqual([...KINDS].sort());
  });

  it.each(KINDS)('has for %s every field that the daemon accepts', (kind) => {
    const fields = faultFields(kind, ['left']);
    const answers = Object.fromEntries(
      fields.map(({ name, choices }) => [name, ANSWERS[name] ?? choices?.[0] ?? '']),
    );
    const spec = faultOf(kind, answers, ALWAYS);
    expect(Object.keys(spec).sort()).toEqual(['kind', ...fields.map(({ name }) => name)].sort());
    expect(faultSpec.safeParse(spec).error?.issues ?? []).toEqual([]);
  });

  it.each(KINDS)('requires for %s the fields that the daemon requires', (kind) => {
    const needed = faultFields(kind, []).filter(({ required }) => required);
    const answers = Object.fromEntries(
      needed.map(({ name, choices }) => [name, ANSWERS[name] ?? choices?.[0] ?? '']),
    );
    // Either of two depths suffices, which no single field can express.
    if (kind === 'mpa-depths') answers['ird'] = '1';
    expect(faultSpec.safeParse(faultOf(kind, answers, ALWAYS)).success).toBe(true);
    for (const { name } of needed) {
      const rest = { ...answers, [name]: ' ' };
      expect(faultSpec.safeParse(faultOf(kind, rest, ALWAYS)).success).toBe(false);
    }
  });

  it('offers only opcodes that the daemon accepts with the kind', () => {
    for (const kind of KINDS) {
      const needed = Object.fromEntries(
        faultFields(kind, [])
          .filter(({ required }) => required)
          .map(({ name, choices }) => [name, ANSWERS[name] ?? choices?.[0] ?? '']),
      );
      if (kind === 'mpa-depths') needed['ird'] = '1';
      const opcodes = faultFields(kind, []).find(({ name }) => name === 'opcode')?.choices ?? [];
      for (const opcode of opcodes) {
        const spec = faultOf(kind, { ...needed, opcode }, ALWAYS);
        expect(faultSpec.safeParse(spec).success, `${kind} ${opcode}`).toBe(true);
      }
    }
  });

  it('describes when a fault happens', () => {
    const of = (name: string, value = '', seed = '') =>
      faultOf('corrupt-crc', {}, { name, value, seed });
    expect(of('always', '3')).toEqual({ kind: 'corrupt-crc' });
    expect(of('once')).toEqual({ kind: 'corrupt-crc', once: true });
    expect(of('nth', '3', '7')).toEqual({ kind: 'corrupt-crc', nth: 3 });
    expect(of('every', '4')).toEqual({ kind: 'corrupt-crc', every: 4 });
    const drawn = { kind: 'corrupt-crc', probability: 0.25, seed: 7 };
    expect(of('probability', '0.25', '7')).toEqual(drawn);
  });

  it('sends answers that are not numbers to the daemon, which names the field', () => {
    expect(faultOf('delay', { ms: 'soon', qp: '1e9x' }, ALWAYS)).toEqual({
      kind: 'delay',
      ms: 'soon',
      qp: '1e9x',
    });
  });

  it('describes a fault in words', () => {
    const fault = { id: 1, matched: 0, fired: 0 };
    expect(faultText({ ...fault, spec: { kind: 'delay', ms: 20, qp: 5, once: true } })).toBe(
      'ms 20, qp 5, once',
    );
    expect(faultText({ ...fault, spec: { kind: 'port-down' } })).toBe(
      'everywhere, on each occasion',
    );
  });
});
