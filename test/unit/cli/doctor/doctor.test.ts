import { fileURLToPath } from 'node:url';
import { describe, expect, it, vi } from 'vitest';
import { examineOpenFiles, judgeNode, judgeProcessVm } from '#daemon/cli/doctor/checks';
import { doctorLines, examine, printReport } from '#daemon/cli/doctor/doctor';
import { judgeRoceUdp } from '#daemon/cli/doctor/roce';
import { judgeSctp } from '#daemon/cli/doctor/sctp';
import { examineSocket, judgeSocketFolder, judgeTrust } from '#daemon/cli/doctor/socket';
import { wantsColors } from '#daemon/console/output';

const folder = (mode: number, uid: number, directory = true) => ({
  mode: 0o40000 | mode,
  uid,
  isDirectory: () => directory,
});

describe('colors', () => {
  it.each([
    [true, {}, true],
    [true, { TERM: 'xterm' }, true],
    [false, {}, false],
    [true, { NO_COLOR: '1' }, false],
    [true, { NO_COLOR: '' }, true],
    [true, { TERM: 'dumb' }, false],
  ])('terminal %s with %j: %s', (isTerminal, environment, wanted) => {
    expect(wantsColors(isTerminal, environment)).toBe(wanted);
  });

  it('mark the words of states, and no others', () => {
    const report = {
      format: 2,
      healthy: false,
      checks: [
        { name: 'node', state: 'ok', text: 'fine' },
        { name: 'socket', state: 'broken', text: 'not there', fix: 'make it' },
      ],
    } as const;
    const printed: string[] = [];
    const line = (text: string): void => void printed.push(text);
    printReport(report, {
      line,
      note: line,
      colored: (color, word, rest) => line(`<${color}>${word}</>${rest}`),
    });
    expect(printed).toEqual([
      '<green>ok</>      node    fine',
      '<red>broken</>  socket  not there',
      '                fix: make it',
    ]);
    printed.length = 0;
    printReport(report, { line, note: line });
    expect(printed).toEqual(doctorLines(report));
  });
});

describe('checks', () => {
  it('refuses a Node before 20', () => {
    expect(judgeNode('18.20.4').state).toBe('broken');
    expect(judgeNode('20.0.0').state).toBe('ok');
    expect(judgeNode('100.1.0').state).toBe('ok');
  });

  it('reports Yama as the cause if it is, else seccomp', () => {
    expect(judgeProcessVm(undefined, 1)).toMatchObject({ state: 'ok' });
    expect(judgeProcessVm(undefined, 1).text).toContain('clients allow it');
    expect(judgeProcessVm('EPERM', 2).fix).toContain('ptrace_scope=1');
    expect(judgeProcessVm('EPERM', 3).fix).toContain('boot');
    expect(judgeProcessVm('EPERM', undefined).text).toContain('seccomp');
    expect(judgeProcessVm('EPERM', 0).fix).toContain('SYS_PTRACE');
  });

  it('requires a socket folder in which no other user can replace the socket', () => {
    expect(judgeSocketFolder('/d', folder(0o700, 7), 7)).toBeUndefined();
    expect(judgeSocketFolder('/d', folder(0o755, 7), 7)).toBeUndefined();
    expect(judgeSocketFolder('/d', folder(0o1777, 0), 7)).toBeUndefined();
    expect(judgeSocketFolder('/d', folder(0o777, 7), 7)?.state).toBe('broken');
    expect(judgeSocketFolder('/d', folder(0o700, 8), 7)?.state).toBe('broken');
    expect(judgeSocketFolder('/d', folder(0o700, 7, false), 7)?.state).toBe('broken');
  });

  it('names an unsuitable runtime directory', () => {
    const runtime = fileURLToPath(import.meta.url);
    vi.stubEnv('XDG_RUNTIME_DIR', runtime);
    expect(examineSocket({ socketPath: `${runtime}/iwarpd/iwarpd.sock` })).toEqual({
      state: 'broken',
      text: `${runtime}/iwarpd, from $XDG_RUNTIME_DIR, is not accessible`,
      fix: expect.stringContaining('unset XDG_RUNTIME_DIR'),
    });
    vi.unstubAllEnvs();
  });

  it('reports whose daemons are trusted', () => {
    expect(judgeTrust(undefined).state).toBe('ok');
    expect(judgeTrust('')).toEqual(judgeTrust(undefined));
    expect(judgeTrust('1001')).toMatchObject({
      state: 'warn',
      text: expect.stringContaining('uid 1001'),
    });
    expect(judgeTrust('root').state).toBe('broken');
  });

  it('names XDG_RUNTIME_DIR if it belongs to another user', () => {
    vi.stubEnv('XDG_RUNTIME_DIR', '/run/user/8');
    const finding = judgeSocketFolder('/run/user/8/iwarpd', folder(0o700, 8), 7);
    expect(finding?.fix).toContain('unset XDG_RUNTIME_DIR');
    expect(judgeSocketFolder('/run/user/88', folder(0o700, 8), 7)?.fix).not.toContain('unset');
    vi.unstubAllEnvs();
  });

  it('judges the port of RoCE, and its socket buffer', () => {
    const here = { address: '192.0.2.1', kernelRxe: false };
    const free = judgeRoceUdp({ ...here, receiveBufferBytes: 8 << 20 });
    expect(free).toEqual({
      state: 'ok',
      text: 'UDP port 4791 of 192.0.2.1 is free; receive buffers of 8192 KiB',
    });
    const small = judgeRoceUdp({ ...here, receiveBufferBytes: 425_984 });
    expect(small).toMatchObject({
      state: 'info',
      fix: expect.stringContaining('rmem_max=4194304'),
    });
    expect(judgeRoceUdp({ ...here, refused: 'EADDRINUSE' }).state).toBe('info');
    const taken = judgeRoceUdp({ ...here, kernelRxe: true, refused: 'EADDRINUSE' });
    expect(taken).toMatchObject({
      state: 'warn',
      fix: expect.stringContaining('rdma link delete'),
    });
    expect(judgeRoceUdp({ ...here, refused: 'EPERM' }).text).toContain('cannot be opened (EPERM)');
  });

  it('judges SCTP, which is optional', () => {
    const here = { address: '192.0.2.1', kernelSctp: false };
    expect(judgeSctp(here)).toEqual({
      state: 'ok',
      text: 'libusrsctp loads; UDP port 9899 of 192.0.2.1 is free; the kernel has no SCTP sockets (sctp module)',
    });
    expect(judgeSctp({ ...here, kernelSctp: true, refused: 'EADDRINUSE' })).toEqual({
      state: 'info',
      text: 'libusrsctp loads; UDP port 9899 of 192.0.2.1 cannot be opened (EADDRINUSE); the kernel has SCTP sockets',
    });
    expect(judgeSctp({ ...here, missing: 'it is not installed' })).toEqual({
      state: 'info',
      text: 'it is not installed; the kernel has no SCTP sockets (sctp module)',
    });
  });

  it('reads the limit of open files', () => {
    const limits = [
      'Limit                     Soft Limit           Hard Limit           Units     ',
      'Max open files            256                  4096                 files     ',
    ].join('\n');
    expect(examineOpenFiles(limits)).toMatchObject({ state: 'warn' });
    expect(examineOpenFiles(limits.replace(' 256 ', ' 255 '))).toMatchObject({ state: 'broken' });
    expect(examineOpenFiles(limits.replace(' 256 ', ' 1024 '))).toMatchObject({ state: 'ok' });
  });
});

describe('the report', () => {
  it('is unhealthy when a check fails or throws, not when it warns', async () => {
    const warn = { name: 'w', examine: () => ({ state: 'warn' as const, text: 'slow', fix: 'm' }) };
    const thrower = {
      name: 'thrower',
      examine: () => {
        throw new Error('no such thing');
      },
    };
    expect((await examine('/s', [warn])).healthy).toBe(true);
    const report = await examine('/s', [warn, thrower]);
    expect(report.healthy).toBe(false);
    expect(doctorLines(report)).toEqual([
      'warn    w        slow',
      '                 fix: m',
      'broken  thrower  no such thing',
    ]);
  });
});
