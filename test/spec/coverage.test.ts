import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type Coverage, groupOf, idsIn, readCoverage, SEEN_BY } from './catalogue.ts';
import { ProofLevels } from './proof-levels.ts';
import { idleReasons, judge, openRows } from './proofs.ts';
import { distrust, sourceFingerprint, type TestResult } from './results.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const coverage = readCoverage(root);
const levels = new ProofLevels(root);

const REAL = 'test/e2e/host-peers.test.ts';
const ENGINE = 'test/unit/iwarp/engine/stream-traffic.test.ts';

describe('requirement rows', () => {
  it('are complete, each with a level, an observer and a text', () => {
    expect(coverage.requirements.size).toBeGreaterThan(800);
    const broken = [...coverage.requirements.values()].filter(
      ({ source, section, level, seen, text }) =>
        !/^(?:\d+|IBA|rxe|cm|rdma-core)$/.test(source) ||
        section === '' ||
        !/^(?:(?:MUST|SHOULD)(?: NOT)?|MAY|FACT)$/.test(level) ||
        !SEEN_BY.includes(seen) ||
        text.length < 20,
    );
    expect(broken).toEqual([]);
  });

  it('belong to RoCE, by their ids, unless their source is an RFC', () => {
    for (const requirement of coverage.requirements.values()) {
      const ofRoce = /^(?:ROCE|IBV|IBCM)-/.test(requirement.id);
      expect(groupOf(requirement), requirement.id).toBe(ofRoce ? 'RoCE' : 'RFCs');
    }
  });

  it('are the only ones that code, tests and reasons cite', () => {
    const cited = [...coverage.tests.keys(), ...coverage.code.keys(), ...coverage.reasons.keys()];
    const unknown = cited.filter((id) => !coverage.requirements.has(id));
    expect([...new Set(unknown)]).toEqual([]);
  });

  it('and suites are in daemon/CONFORMANCE.md by names that exist', () => {
    const page = readFileSync(join(root, 'daemon/CONFORMANCE.md'), 'utf8');
    expect(idsIn(page).filter((id) => !coverage.requirements.has(id))).toEqual([]);
    const paths = page.match(/(?<=`)test\/[\w./-]+(?=`)/g) ?? [];
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });
});

describe('titles', () => {
  it('may begin with ids or end with them in brackets', () => {
    expect(idsIn('MPA-3-01, EMPA-9.1-03: one each')).toEqual(['MPA-3-01', 'EMPA-9.1-03']);
    expect(idsIn('one each [RPCR2-3.4.6.2-01, ARCH-ORD-01]')).toEqual([
      'RPCR2-3.4.6.2-01',
      'ARCH-ORD-01',
    ]);
    expect(idsIn('suite [MPA-3-01] > test [MPA-3-01]')).toEqual(['MPA-3-01']);
    expect(idsIn('both wires [ROCE-BTH-03, IBCM-REQ-01]')).toEqual(['ROCE-BTH-03', 'IBCM-REQ-01']);
    expect(idsIn('no ids, RFC 5044 and IPv4-mapped')).toEqual([]);
  });
});

describe('proof levels', () => {
  it('follow from what a test file imports', () => {
    expect(levels.of(REAL)).toBe('real');
    expect(levels.of('test/compliance/daemon.test.ts')).toBe('real');
    expect(levels.of('test/interop/captures.test.ts')).toBe('kernel');
    expect(levels.of('test/interop/siw-verbs.test.ts')).toBe('kernel');
    expect(levels.of('test/unit/iwarp/wire/ddp-header.test.ts')).toBe('codec');
    expect(levels.of('test/interop/rxe-peer.test.ts')).toBe('kernel');
    expect(levels.of('test/unit/roce/transport/rxe-replay.test.ts')).toBe('kernel');
    expect(levels.of('test/unit/host/roce/packet-network.test.ts')).toBe('real');
    expect(levels.of('test/compliance/roce-daemon.test.ts')).toBe('real');
    expect(levels.of('test/unit/roce/cm/communication-manager.test.ts')).toBe('engine');
    expect(levels.of('test/unit/roce/wire/packet.test.ts')).toBe('codec');
  });

  it('are lowered by a stub, wherever it is defined', () => {
    expect(levels.of(ENGINE)).toBe('engine');
    expect(levels.of('test/unit/rnic/queues/send-queue.test.ts')).toBe('engine');
    expect(levels.of('test/unit/iwarp/cm/endpoint.test.ts')).toBe('engine');
    expect(levels.of('test/unit/host/links/tcp-link.test.ts')).toBe('engine');
    expect(levels.of('test/unit/roce/transport/responder.test.ts')).toBe('engine');
    expect(levels.of('test/unit/host/roce/packet-datagrams.test.ts')).toBe('engine');
  });
});

describe('a judgement', () => {
  const rows: Coverage = {
    requirements: new Map(
      (['peer', 'inside'] as const).map((seen) => {
        const id = seen === 'peer' ? 'MPA-1-01' : 'MPA-1-02';
        return [id, { id, source: '5044', section: '1', level: 'MUST', seen, text: 'holds' }];
      }),
    ),
    reasons: new Map(),
    tests: new Map(),
    code: new Map(),
  };
  const both = '[MPA-1-01, MPA-1-02]';
  const openAfter = (...tests: TestResult[]): string[] =>
    openRows(judge(rows, tests, levels)).map(({ requirement }) => requirement.id);

  it('requires real objects for visible behaviour, and any test for internals', () => {
    expect(openAfter()).toEqual(['MPA-1-01', 'MPA-1-02']);
    expect(openAfter({ file: ENGINE, title: both, state: 'passed' })).toEqual(['MPA-1-01']);
    expect(openAfter({ file: REAL, title: both, state: 'passed' })).toEqual([]);
  });

  it('counts tests that passed, and none that was skipped or is beside a failed one', () => {
    expect(openAfter({ file: REAL, title: both, state: 'skipped' })).toHaveLength(2);
    const passed: TestResult = { file: REAL, title: both, state: 'passed' };
    expect(openAfter(passed, { file: ENGINE, title: both, state: 'failed' })).toHaveLength(2);
  });

  it('accepts a reason instead of a proof, and reports a needless one', () => {
    const reasoned = { ...rows, reasons: new Map([['MPA-1-01', 'it cannot be seen']]) };
    const title = '[MPA-1-02]';
    const unproven = judge(reasoned, [{ file: ENGINE, title, state: 'passed' }], levels);
    expect([openRows(unproven), idleReasons(unproven)]).toEqual([[], []]);
    const proven = judge(reasoned, [{ file: REAL, title: both, state: 'passed' }], levels);
    expect(idleReasons(proven).map(({ requirement }) => requirement.id)).toEqual(['MPA-1-01']);
  });
});

describe('results', () => {
  it('of some suites or from other sources are not trusted', () => {
    const fingerprint = sourceFingerprint(root);
    const results = { partial: false, fingerprint, tests: [] };
    expect(distrust(root, results)).toBeUndefined();
    expect(distrust(root, { ...results, partial: true })).toMatch(/some suites only/);
    expect(distrust(root, { ...results, fingerprint: '' })).toMatch(/other sources/);
  });
});
