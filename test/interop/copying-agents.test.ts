/**
 * An agent that copies without a pause: requests of the daemon meanwhile, descriptors of its program, a stop of its
 * program, and the death of its daemon.
 */
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
  vi,
} from 'vitest';
import { DaemonProcess } from '../support/daemon-process.ts';
import { until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram, shimEnvironment } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const DEVICE = { name: 'roce0', addresses: ['127.0.72.47'], transport: 'roce' } as const;
/** The interval at which the daemon says that a reply takes long, in microseconds. */
const REMINDER_INTERVAL_MICROS = 20_000_000;
/** The interval at which it looks at a copy that takes long. */
const CHECK_INTERVAL_MICROS = 10_000;
/** Looks after which it would have ended a program whose memory does not answer. */
const CHECKS = 300;
const REMINDERS = 3;

let program: string;

async function expectEnd(running: ShimProgram, text: string): Promise<void> {
  const ended = await running.end();
  expect(ended, ended.output).toMatchObject({ status: 0, late: false });
  expect(ended.output).toContain(text);
}

describeWith(['native'], 'an agent that copies', () => {
  beforeAll(() => {
    // Exports its functions: the preload library calls one.
    program = compileProgram('copying-agents', ['-rdynamic']);
  });

  describe('for a daemon that lives', () => {
    let rig: RoceRig;

    beforeAll(async () => {
      rig = await RoceRig.start(DEVICE);
    });

    afterAll(() => rig.stop());

    function start(how: string): ShimProgram {
      return new ShimProgram([program, 'roce0', how], rig.environment);
    }

    it('keeps its connection when the program replaces descriptors', async () => {
      await expectEnd(start('numbers'), 'the agent still copies');
    });

    // Only root may leave page faults of the kernel unresolved.
    describe.runIf(process.getuid?.() === 0)('slowly', () => {
      it('serves requests between copies', async () => {
        await expectEnd(start('requests'), 'requests do not wait for copies');
      });

      describe('and is stopped', () => {
        /** How often the daemon has waited for each time. */
        let waits: Map<number, number>;

        beforeEach(() => {
          const { clock } = rig.host;
          const after = clock.after.bind(clock);
          waits = new Map();
          vi.spyOn(clock, 'after').mockImplementation((delay, run) => {
            const shortened = delay === REMINDER_INTERVAL_MICROS || delay === CHECK_INTERVAL_MICROS;
            const passed = (): void => {
              waits.set(delay, (waits.get(delay) ?? 0) + 1);
              run();
            };
            return after(shortened ? delay / 1000 : delay, passed);
          });
        });

        afterEach(() => {
          vi.restoreAllMocks();
        });

        it.each(['freeze-dereg', 'freeze-destroy'])(
          'delays the receiver alone: %s',
          async (how) => {
            const running = start(how);
            onTestFinished(async () => void (await running.kill()));
            await running.until(/^frozen: \d+$/m);
            const child = Number(/^frozen: (\d+)$/m.exec(running.output)?.[1]);
            await until('reminders', () => (waits.get(REMINDER_INTERVAL_MICROS) ?? 0) >= REMINDERS);
            await until('checks', () => (waits.get(CHECK_INTERVAL_MICROS) ?? 0) >= CHECKS);
            expect(running.output).not.toContain('answered');
            process.kill(child, 'SIGCONT');
            await expectEnd(running, 'all processes survive');
          },
        );
      });
    });
  });

  it.runIf(process.getuid?.() === 0)('begins no copy after the death of its daemon', async () => {
    const daemon = await DaemonProcess.start({ devices: [DEVICE] });
    try {
      const environment = await shimEnvironment(daemon.socketPath);
      const running = new ShimProgram([program, 'roce0', 'death'], environment);
      await running.until(/copies wait/);
      // All its connections are closed then.
      await daemon.end('SIGKILL');
      running.signal('SIGUSR1');
      await expectEnd(running, "no copy begins after the daemon's death");
    } finally {
      await daemon.clean();
    }
  });
});
