/** A process with an embedded device stays alive while it awaits something from the device. */
import { afterEach, describe, expect, it } from 'vitest';
import { ownAddress } from '../support/own-address.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compiledTest } from './kernel-peer/inner-suite.ts';

const started: ShimProgram[] = [];

afterEach(async () => {
  for (const program of started) program.signal('SIGKILL');
  await Promise.all(started.splice(0).map((each) => each.end()));
});

function start(...words: readonly string[]): ShimProgram {
  const program = compiledTest('interop/embedded-ends.js');
  const running = new ShimProgram([process.execPath, program, ...words], {});
  started.push(running);
  return running;
}

function livesWhileItAwaits(kind: string): void {
  it('stays alive while it awaits a connection, a message and the end of its peer', async () => {
    const [here, there] = [ownAddress(71), ownAddress(72)];
    const server = start('server', kind, here);
    await server.until(/port (\d+)\n/);
    const [, port = ''] = /port (\d+)/.exec(server.output) ?? [];
    const client = start('client', kind, there, here, port);
    expect(await server.end()).toMatchObject({
      status: 0,
      output: `port ${port}\ngot hello\nend\n`,
    });
    expect(await client.end()).toMatchObject({ status: 0, output: 'closed\nend\n' });
  });

  it.each(['idle', 'closed'])('exits when nothing is awaited: %s', async (part) => {
    expect(await start(part, kind, ownAddress(73)).end()).toMatchObject({
      status: 0,
      output: 'end\n',
    });
  });
}

describe.each(['tcp', 'roce'])('a process with an embedded device of %s', livesWhileItAwaits);

describeWith(['sctp'], 'a process with an embedded device of SCTP', () => {
  livesWhileItAwaits('sctp');
});
