import { describe, expect, it } from 'vitest';
import { judgeLibraries, judgeProvider } from '../../../daemon/cli/doctor-rdma-core.ts';

describe('what doctor finds of rdma-core', () => {
  it('is the release of its libraries', () => {
    const names = ['libibverbs.so.1', 'libibverbs.so.1.14.44.0', 'librdmacm.so.1.3.44.0'];
    expect(judgeLibraries(names)).toEqual({
      state: 'ok',
      text: 'release 44.0: libibverbs and librdmacm',
    });
  });

  it('is a warning when the libraries are of two releases, or one is missing', () => {
    const two = judgeLibraries(['libibverbs.so.1.14.44.0', 'librdmacm.so.1.3.56.0']);
    expect(two.state).toBe('warn');
    expect(two.text).toContain('44.0');
    expect(judgeLibraries(['libibverbs.so.1.14.44.0'])).toMatchObject({
      state: 'warn',
      text: 'librdmacm is missing',
    });
  });

  it('is no fault when it is not installed', () => {
    const finding = judgeLibraries(['libc.so.6']);
    expect(finding.state).toBe('info');
    expect(finding.mend).toContain('ibverbs-providers');
  });

  it('is a warning when the provider siw is not complete', () => {
    expect(judgeProvider(true, ['libsiw-rdmav34.so']).state).toBe('ok');
    expect(judgeProvider(true, []).state).toBe('warn');
    expect(judgeProvider(false, ['libsiw-rdmav34.so']).state).toBe('warn');
  });
});
