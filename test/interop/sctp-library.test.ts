/** libusrsctp has a thread of its own, which outlasts who loaded the library. */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { describeWith } from './prerequisites.ts';

const STACK = new URL('../../dist/native-bridge/usrsctp/stack.js', import.meta.url);

/** Ends a worker that has the stack, then looks for the library in its own process. */
const PROGRAM = `
  import { readFileSync } from 'node:fs';
  import { Worker } from 'node:worker_threads';
  const load = "import('${STACK.href}').then(({ usrsctpStack }) => usrsctpStack())";
  new Worker(load, { eval: true }).on('exit', () => {
    console.log(readFileSync('/proc/self/maps', 'utf8').includes('libusrsctp'));
  });
`;

describeWith(['sctp'], 'libusrsctp', () => {
  it('stays in memory when the thread ends that loaded it', () => {
    const program = ['--input-type=module', '-e', PROGRAM];
    const ended = spawnSync(process.execPath, program, { encoding: 'utf8' });
    expect([ended.signal, ended.stdout], ended.stderr).toEqual([null, 'true\n']);
  });
});
