/**
 * Programs that fork without exec, and the use of inherited devices in their children. The same
 * program runs on Linux's siw and rxe in `kernel-peer.test.ts` and `rxe-peer.test.ts`.
 */
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';
import { linesOf, stepsOfChild } from './forked-child.ts';
import { PYTHON } from './pyverbs-runner.ts';

const TRANSPORTS = { iwarp: '127.0.72.25', roce: '127.0.72.26' } as const;

let program: string;

/** Runs the program on a device of this transport; returns its output by process. */
async function run(transport: keyof typeof TRANSPORTS, how: string) {
  const address = TRANSPORTS[transport];
  const rig = await RoceRig.start({ name: 'device0', addresses: [address], transport });
  try {
    const words = [program, address, String(await freePort()), how];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    rig.host.assertDeepInvariants();
    return linesOf(ended.output);
  } finally {
    await rig.stop();
  }
}

describeWith(['native'], 'a forked child', () => {
  beforeAll(() => {
    program = compileProgram('forked-child', ['-lrdmacm']);
  });

  it.each([
    ['iwarp', 'alive'],
    ['iwarp', 'gone'],
    ['roce', 'alive'],
    ['roce', 'gone'],
  ] as const)(
    'on %s gets the kernel’s results while its parent is %s, and sends no bytes of its own',
    async (transport, parent) => {
      const said = await run(transport, parent);
      expect(said.child).toEqual(stepsOfChild(transport));
      const alive = parent === 'alive';
      expect(said.parent).toEqual(alive ? ['ibv_post_send: ok'] : []);
      // On Linux, the next doorbell of the parent also sends the child's posts.
      const before = ['parent', 'parent, seen by the child'];
      expect(said.peer).toEqual(alive ? [...before, 'parent at last'] : before);
    },
  );

  // While a program streams, the daemon polls the queue without doorbells.
  it.each(['iwarp', 'roce'] as const)(
    'on %s sends nothing while a thread of its parent streams on the queue pair',
    async (transport) => {
      const said = await run(transport, 'streams');
      expect(said.child).toEqual([]);
      expect(said.peer).toEqual(['all numbers in order', 'parent at last']);
    },
  );

  it.skipIf(process.getuid?.() !== 0)(
    'sends nothing even without /proc, where it cannot see its mappings',
    async () => {
      const said = await run('roce', 'chroot');
      expect(said.peer).toEqual(['all numbers in order', 'parent at last']);
    },
  );
});

/** Workers as Python's multiprocessing forks them, on a device that their parent has open, too. */
const WORKERS = `
import multiprocessing, sys
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
import pyverbs.enums as e

def work(name, answers):
    context = Context(name=name)
    pd = PD(context)
    mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
    cq = CQ(context, 10)
    mr.write('a worker', 8)
    answers.put(bytes(mr.read(8, 0)).decode())

multiprocessing.set_start_method('fork')
context = Context(name=sys.argv[1])
mr = MR(PD(context), 4096, e.IBV_ACCESS_LOCAL_WRITE)
answers = multiprocessing.Queue()
workers = [multiprocessing.Process(target=work, args=(sys.argv[1], answers)) for _ in range(4)]
for worker in workers: worker.start()
print(', '.join(answers.get() for _ in workers))
for worker in workers: worker.join()
sys.exit(any(worker.exitcode for worker in workers))
`;

describeWith(['pyverbs'], "a worker of Python's multiprocessing", () => {
  it.each(['iwarp', 'roce'] as const)('opens a device of %s again', async (transport) => {
    const rig = await RoceRig.start({
      name: 'device0',
      addresses: [TRANSPORTS[transport]],
      transport,
    });
    onTestFinished(() => rig.stop());
    const ended = await new ShimProgram([PYTHON, '-c', WORKERS, 'device0'], rig.environment).end();
    expect(ended.output).toBe('a worker, a worker, a worker, a worker\n');
    expect(ended.status).toBe(0);
  });
});
