/** The ping-pongs of rdma-core, unmodified, between two programs on a RoCE device of one daemon. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';

let rig: RoceRig;

beforeAll(async () => {
  rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.3'], transport: 'roce' });
});

afterAll(() => rig.stop());

/** Runs both ends; the client's output. */
async function pingpong(...words: readonly string[]): Promise<string> {
  const port = await freePort();
  const rounds = words.includes('-n') ? [] : ['-n', '100'];
  const command = [...words, '-p', String(port), ...rounds];
  const server = new ShimProgram(command, rig.environment);
  await listens(port, server);
  const client = new ShimProgram([...command, '127.0.0.1'], rig.environment);
  const [served, asked] = await Promise.all([server.end(), client.end()]);
  expect(asked.status, `${asked.output}${served.output}`).toBe(0);
  expect(served.status, served.output).toBe(0);
  return asked.output;
}

describeWith(['rdma-programs'], 'ping-pong over RoCE', () => {
  it.each([
    'ibv_rc_pingpong -g 1 -c',
    'ibv_rc_pingpong -g 1 -c -e',
    'ibv_rc_pingpong -g 0 -c -m 256',
    'ibv_rc_pingpong -g 1 -c -N',
    'ibv_uc_pingpong -g 1 -c',
    'ibv_ud_pingpong -g 1 -c',
    'ibv_srq_pingpong -g 1 -c',
  ])('%s', async (command) => {
    expect(await pingpong(...command.split(' '))).toMatch(/^100 iters in/m);
  });

  // A lost event hangs the program: it sleeps until the next one.
  it.each(['ibv_rc_pingpong', 'ibv_ud_pingpong'])(
    '%s by events, thousands of rounds',
    async (name) => {
      expect(await pingpong(name, '-g', '1', '-c', '-e', '-n', '3000')).toMatch(/^3000 iters in/m);
    },
  );

  it('without a GID index fails at RTR, as on every RoCE device', async () => {
    const port = await freePort();
    const words = ['ibv_rc_pingpong', '-p', String(port)];
    const server = new ShimProgram(words, rig.environment);
    await listens(port, server);
    const client = await new ShimProgram([...words, '127.0.0.1'], rig.environment).end();
    expect(client.status).not.toBe(0);
    const { status, output } = await server.end();
    expect(status).not.toBe(0);
    expect(output).toContain('Failed to modify QP to RTR');
  });

  it('ibv_xsrq_pingpong reports that there is no XRC, as on rxe, and exits', async () => {
    const words = ['ibv_xsrq_pingpong', '-g', '1', '-p', String(await freePort())];
    const { status, output } = await new ShimProgram(words, rig.environment).end();
    expect(status).toBe(1);
    expect(output).toContain("Couldn't Open the XRC Domain 95");
  });
});
