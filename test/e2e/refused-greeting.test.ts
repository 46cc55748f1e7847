import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emitWelcome, Role, TOKEN_BYTES } from '#contract/protocol/ipc-frames';
import { ERRNO } from '#contract/verbs/errors';
import { preloadPath } from '#daemon/console/preload-library';
import { DaemonConnection } from '#verbs-api/client/daemon-connection';
import { temporaryFolder } from '../support/temporary-folder.ts';

const execute = promisify(execFile);

/** Opens of the device by one program; before the fix, one in a few failed with another error. */
const OPENS = 200;

/** A daemon that answers each connection with a refusal and closes it, without reading. */
const REFUSER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { path, refusal, closed } = workerData;
  const server = require('node:net').createServer((socket) => {
    socket.on('error', () => {});
    socket.write(refusal, () => {
      socket.destroy();
      Atomics.add(closed, 0, 1);
      Atomics.notify(closed, 0);
    });
  });
  server.listen(path, () => parentPort.postMessage('listening'));
`;

describe('a daemon that refuses and closes before it has read the greeting', () => {
  const closed = new Int32Array(new SharedArrayBuffer(4));
  let directory: string;
  let path: string;
  let refuser: Worker;

  beforeEach(async () => {
    directory = temporaryFolder();
    path = join(directory, 's');
    const token = new Uint8Array(TOKEN_BYTES);
    const errno = ERRNO.ENOMEM.number;
    const refusal = emitWelcome({ errno, daemonPid: 1, token, text: 'full today' });
    closed[0] = 0;
    refuser = new Worker(REFUSER, { eval: true, workerData: { path, refusal, closed } });
    await new Promise((resolve) => refuser.once('message', resolve));
  });

  afterEach(() => refuser.terminate());

  it('is quoted to a TypeScript client', async () => {
    const opened = DaemonConnection.open({ path }, Role.admin);
    // This thread sends its greeting only after the daemon has closed.
    expect(Atomics.wait(closed, 0, 0, 10_000)).not.toBe('timed-out');
    await expect(opened).rejects.toMatchObject({
      code: 'ENOMEM',
      message: 'the daemon refused the connection: full today',
    });
  });

  it('gives an unmodified program its error', async () => {
    const open = `for n in $(seq ${OPENS}); do true </dev/infiniband/uverbs0; done 2>&1 | cat`;
    const env = { ...process.env, LD_PRELOAD: preloadPath(), IWARPD_SOCKET: path };
    const { stdout } = await execute('sh', ['-c', open], { env });
    const lines = stdout.trimEnd().split('\n');
    expect(lines).toHaveLength(OPENS);
    for (const line of lines) expect(line).toContain('Cannot allocate memory');
  });
});
