/** libusrsctp has its own thread, which outlives Node's use of the library. */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';

const BRIDGE = new URL('../../dist/native-bridge/', import.meta.url).href;

/** Releases the library more often than it was loaded, then looks for it in memory. */
const PROGRAM = `
  import { readFileSync } from 'node:fs';
  import { libc } from '${BRIDGE}libc/libc.js';
  import { USRSCTP_LIBRARY } from '${BRIDGE}usrsctp/library.js';
  import { usrsctpStack } from '${BRIDGE}usrsctp/stack.js';
  const RTLD_NOW = 2;
  const dlopen = libc.func('void *dlopen(const char *name, int flags)');
  const dlclose = libc.func('int dlclose(void *handle)');
  usrsctpStack();
  const handle = dlopen(USRSCTP_LIBRARY, RTLD_NOW);
  for (let times = 0; times < 5; times += 1) dlclose(handle);
  console.log(readFileSync('/proc/self/maps', 'utf8').includes(USRSCTP_LIBRARY.replace('.so.2', '')));
`;

describeWith(['sctp'], 'libusrsctp', () => {
  it('stays in memory until the process ends', () => {
    const program = ['--input-type=module', '-e', PROGRAM];
    const ended = spawnSync(process.execPath, program, { encoding: 'utf8' });
    expect([ended.signal, ended.stdout], ended.stderr).toEqual([null, 'true\n']);
  });
});
