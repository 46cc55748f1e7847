import { describe, expect, it } from 'vitest';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import type { Refusal } from '#contract/protocol/refusals';
import { explainLine } from '#daemon/cli/control/explain';
import {
  githubAnnotation,
  idleFaultLines,
  printReport,
  type RunFacts,
  runReport,
  shortReport,
} from '#daemon/cli/run/run-report';

const CLEAN: RunFacts['open'] = {
  leaks: [],
  endedHolding: [],
  clients: 0,
  connections: 0,
  faults: 0,
};
const LEAKING: ClientStatus = {
  id: 1,
  pid: 42,
  uid: 0,
  program: 'server',
  connectedSeconds: 1,
  usage: {
    objects: { qp: 2, pd: 1, mr: 0 },
    sharedBytes: 0,
    pinnedBytes: 0,
    tiers: {},
    tierReasons: {},
  },
};

function facts(given: Partial<RunFacts>): RunFacts {
  return {
    words: ['make', 'check'],
    end: { status: 0 },
    open: CLEAN,
    expectClean: false,
    faults: [],
    givenFaults: 2,
    unrecorded: [],
    refusals: { refusals: [], last: 0 },
    log: [],
    ...given,
  };
}

function printed(given: Partial<RunFacts>): string[] {
  const lines: string[] = [];
  const report = runReport(facts(given));
  const note = (text: string): void => void lines.push(text);
  if (report !== undefined) printReport(report, { line: note, note });
  return lines;
}

describe('the report of a run', () => {
  it('is empty for a program that succeeds', () => {
    expect(runReport(facts({}))).toBeUndefined();
    expect(runReport(facts({ open: { ...CLEAN, leaks: [LEAKING] } }))).toBeUndefined();
    expect(runReport(facts({ expectClean: true }))).toBeUndefined();
  });

  it('names the status or the signal', () => {
    expect(printed({ end: { status: 2 } })).toEqual(['iwarpd: make check: ended with status 2']);
    expect(printed({ end: { signal: 'SIGKILL' } })).toEqual([
      'iwarpd: make check: ended by SIGKILL',
    ]);
  });

  it('fails for objects left open if none are expected, with pid and program', () => {
    expect(printed({ expectClean: true, open: { ...CLEAN, leaks: [LEAKING] } })).toEqual([
      'iwarpd: make check: succeeded, but left objects open',
      '  objects left open:',
      '    1 client still held objects',
      '    pid  program  held',
      '    42   server   2 qp, 1 pd',
    ]);
  });

  it('lists the faults that triggered and the last lines of the log', () => {
    const fault = { id: 1, spec: { kind: 'drop' } as const, matched: 9, fired: 3 };
    const idle = { ...fault, id: 2, fired: 0 };
    const lines = printed({ end: { status: 1 }, faults: [fault, idle], log: ['12:00 warn late'] });
    expect(lines).toEqual([
      'iwarpd: make check: ended with status 1',
      '  faults that triggered:',
      '    id  fault  occasions  triggered',
      '    1   drop   9          3',
      '  faults that never triggered:',
      '    fault 2 (drop) never triggered, on 9 occasions',
      '  last lines of the daemon’s log:',
      '    12:00 warn late',
    ]);
  });

  it('fails for a fault that never triggered if the run must be clean, unless by chance', () => {
    const idle = { id: 1, spec: { kind: 'corrupt-stag', nth: 3 } as const, matched: 1, fired: 0 };
    const line = 'fault 1 (corrupt-stag nth 3) never triggered, on 1 occasion';
    expect(printed({ faults: [idle] })).toEqual([]);
    expect(idleFaultLines([idle])).toEqual([line]);
    const failure = 'iwarpd: make check: succeeded, but fault 1 never triggered';
    const lines = [failure, '  faults that never triggered:', `    ${line}`];
    expect(printed({ expectClean: true, faults: [idle] })).toEqual(lines);
    const both = printed({ expectClean: true, faults: [idle, { ...idle, id: 2 }] });
    expect(both[0]).toBe('iwarpd: make check: succeeded, but faults 1 and 2 never triggered');
    const chance = { ...idle, spec: { kind: 'drop', probability: 0.1 } as const };
    expect(printed({ expectClean: true, faults: [chance] })).toEqual([]);
    expect(printed({ expectClean: true, faults: [{ ...chance, matched: 0 }] })[0]).toBe(failure);
    // A fault that the program added.
    expect(printed({ expectClean: true, faults: [idle], givenFaults: 0 })).toEqual([]);
  });

  it('fails for recordings that are cut short', () => {
    const cut = 'cannot write t: no space left on device (ENOSPC)';
    const lines = [`iwarpd: make check: succeeded, but ${cut}`, '  recordings that are cut short:'];
    expect(printed({ unrecorded: [cut] })).toEqual([...lines, `    ${cut}`]);
    const failed = printed({ unrecorded: [cut], end: { status: 2 } });
    expect(failed).toEqual(['iwarpd: make check: ended with status 2', lines[1], `    ${cut}`]);
    const short = shortReport(['make'], { status: 0 }, [cut]);
    expect(short?.failure).toBe(`make: succeeded, but ${cut}`);
    expect(shortReport(['make'], { status: 0 }, [])).toBeUndefined();
  });

  it('lists the last refusals with code, verb, sentence and times, and counts those before', () => {
    const refused: Refusal = {
      number: 30,
      at: '2026-01-02T03:04:05.678Z',
      pid: 42,
      uid: 0,
      program: 'server',
      api: 'verbs',
      verb: 'ibv_modify_qp',
      step: 'INIT to RTR',
      code: 'EINVAL',
      sentence: 'RoCE needs a GID',
      device: 'roce0',
      objects: { qp: 17 },
      times: 3,
    };
    const end = { status: 1 };
    const refusals = { refusals: [refused], last: 30 };
    const [, title, earlier, line] = printed({ end, refusals });
    expect([title, earlier]).toEqual(['  refusals:', '    27 earlier ones are not shown']);
    expect(line?.trim()).toBe(explainLine(refused));
    expect(line).toContain(
      'server[42] ibv_modify_qp INIT to RTR: EINVAL: RoCE needs a GID (roce0 qp 17) [3 times]',
    );
    expect(printed({ end, refusals: { refusals: [refused], last: 3 } })).toHaveLength(3);
    const report = runReport(facts({ end, refusals }));
    expect(report && githubAnnotation(report)).toBe(
      '::error title=iwarpd run::make check: ended with status 1%0Arefusals: 30',
    );
  });
});
