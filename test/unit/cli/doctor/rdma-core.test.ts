import { describe, expect, it } from 'vitest';
import { judgeLibraries, judgeProvider } from '#daemon/cli/doctor/rdma-core';

describe('doctor and rdma-core', () => {
  it('reports the release of the libraries', () => {
    const names = ['libibverbs.so.1', 'libibverbs.so.1.14.44.0', 'librdmacm.so.1.3.44.0'];
    expect(judgeLibraries(names)).toEqual({
      state: 'ok',
      text: 'release 44.0: libibverbs and librdmacm',
    });
  });

  it('warns when the libraries come from two releases, or one is missing', () => {
    const two = judgeLibraries(['libibverbs.so.1.14.44.0', 'librdmacm.so.1.3.56.0']);
    expect(two.state).toBe('warn');
    expect(two.text).toContain('44.0');
    expect(judgeLibraries(['libibverbs.so.1.14.44.0'])).toMatchObject({
      state: 'warn',
      text: 'librdmacm is missing',
    });
  });

  it('accepts a machine without rdma-core', () => {
    const finding = judgeLibraries(['libc.so.6']);
    expect(finding.state).toBe('info');
    expect(finding.fix).toContain('ibverbs-providers');
  });

  it('warns when a provider is incomplete, and names the missing devices', () => {
    expect(judgeProvider(true, ['libsiw-rdmav34.so'], 'iWARP device').state).toBe('ok');
    expect(judgeProvider(true, [], 'RoCE device')).toMatchObject({
      state: 'warn',
      text: 'its library is missing: programs see no RoCE device',
    });
    expect(judgeProvider(false, ['libsiw-rdmav34.so'], 'iWARP device')).toMatchObject({
      state: 'warn',
      text: 'libibverbs does not know it: programs see no iWARP device',
    });
  });
});
