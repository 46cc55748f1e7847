/**
 * The preload library, built with sanitizers, under a program that stresses it from twelve threads
 * (`preload-stress`), with daemons that serve and daemons that die.
 *
 * The library's own memory comes from mmap, so AddressSanitizer reports a use after unmap as an
 * access to unmapped memory. ThreadSanitizer sees the library's accesses, not those of libibverbs,
 * whose packages are built without it. If the kernel randomizes more address bits than it supports
 * (`vm.mmap_rnd_bits` of 32), it needs `setarch -R`, which some containers refuse.
 *
 * `IWARPD_STRESS_SECONDS` sets how long each run takes, `IWARPD_STRESS_SEED` repeats one:
 * `IWARPD_STRESS_SECONDS=600 npm test -- test/interop/preload-sanitizers.test.ts`.
 */
import { spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { cpSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { MemoryTier } from '#contract/verbs/provider';
import { DaemonProcess } from '../support/daemon-process.ts';
import { patience, quiet, TEST_MS } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import {
  type EndedProgram,
  type Environment,
  ShimProgram,
  shimEnvironment,
} from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const SECONDS = Number(process.env['IWARPD_STRESS_SECONDS'] ?? 4);
const SEED = Number(process.env['IWARPD_STRESS_SEED'] ?? randomInt(2 ** 31));
const DEATHS = Math.max(3, Math.round(SECONDS / 2));
/** A daemon dies within this many milliseconds after the first messages. */
const DEATH_MS = 1000;
/** Added to the program's own time limit, which ends it long before. */
const PATIENCE_MS = 90_000;

const sources = join(repositoryRoot(), 'native-bridge/preload');
const stressSources = join(repositoryRoot(), 'test/interop/preload-stress');

interface Sanitizer {
  readonly name: string;
  readonly flags: readonly string[];
  /** Libraries to load before the preload library. */
  readonly runtime: string;
  readonly variables: Environment;
  /** The launcher of the program. */
  readonly wrapper: readonly string[];
}

const ADDRESS: Sanitizer = {
  name: 'AddressSanitizer and UndefinedBehaviorSanitizer',
  flags: ['-fsanitize=address,undefined', '-fno-sanitize-recover=all', '-fno-omit-frame-pointer'],
  runtime: 'libasan.so',
  // The rdma libraries leave memory behind when their daemon dies; the preload library allocates none.
  variables: { ASAN_OPTIONS: 'detect_leaks=0', UBSAN_OPTIONS: 'print_stacktrace=1' },
  wrapper: [],
};

const fixedAddresses = spawnSync('setarch', ['-R', 'true']).status === 0;

const THREAD: Sanitizer = {
  name: 'ThreadSanitizer',
  flags: ['-fsanitize=thread'],
  runtime: 'libtsan.so',
  variables: {
    // One report is enough; AddressSanitizer, too, ends the program at its first.
    TSAN_OPTIONS: `halt_on_error=1 die_after_fork=0 suppressions=${join(stressSources, 'thread-suppressions')}`,
  },
  wrapper: fixedAddresses ? ['setarch', '-R'] : [],
};

const REPORT = /Sanitizer|runtime error:/;

function compile(command: string, args: readonly string[], variables: Environment = {}): void {
  const env = { ...process.env, ...variables };
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8', env });
  if (status !== 0) throw new Error(`${command} failed: ${stderr}`);
}

function runtimePath({ runtime }: Sanitizer): string {
  return spawnSync('cc', [`-print-file-name=${runtime}`], { encoding: 'utf8' }).stdout.trim();
}

describeWith(['sanitizers'], `the preload library under stress (seed ${SEED})`, () => {
  let directory: string;
  let stress: string;

  beforeAll(() => {
    directory = temporaryFolder();
    stress = join(directory, 'stress');
    const files = readdirSync(stressSources).filter((name) => name.endsWith('.c'));
    const paths = files.map((name) => join(stressSources, name));
    const flags = ['-std=c11', '-D_GNU_SOURCE', '-O1', '-g', '-Wall', '-Wextra', '-Werror'];
    compile('cc', [...flags, '-pthread', ...paths, '-libverbs', '-lrdmacm', '-o', stress]);
  });

  /** Builds the library, compiling only sources that are new or changed; returns its path. */
  function build({ flags }: Sanitizer, folder: string, target: string): string {
    const variables = { CC: join(stressSources, 'keep-objects.sh'), KEPT_OBJECTS: directory };
    compile('bash', [join(folder, 'build.sh'), target, ...flags], variables);
    return target;
  }

  /** Starts the stress on a daemon. */
  async function start(
    daemon: DaemonProcess,
    sanitizer: Sanitizer,
    library: string,
    ...words: readonly string[]
  ): Promise<ShimProgram> {
    const environment = await shimEnvironment(daemon.socketPath);
    const preload = `${runtimePath(sanitizer)}:${library}`;
    return new ShimProgram([...sanitizer.wrapper, stress, ...words], {
      ...environment,
      ...sanitizer.variables,
      LD_PRELOAD: preload,
    });
  }

  async function steadily(
    memoryTiers: MemoryTier[],
    sanitizer: Sanitizer,
    library: string,
    seconds: number,
  ): Promise<EndedProgram> {
    const daemon = await DaemonProcess.start({ memoryTiers: memoryTiers as ['agent'] });
    try {
      const words = ['steady', `${SEED}`, `${seconds * 1000}`];
      return await (await start(daemon, sanitizer, library, ...words)).end();
    } finally {
      await daemon.clean();
    }
  }

  describe.each([ADDRESS, THREAD])('built with $name', (sanitizer) => {
    let library: string;

    beforeAll(() => {
      library = build(sanitizer, sources, join(directory, `${sanitizer.runtime}-shim.so`));
    });

    it.each(['process_vm', 'agent'] as const)(
      'works without a report where memory is reached by %s',
      async (tier) => {
        const { status, output } = await steadily([tier], sanitizer, library, SECONDS);
        expect(output).not.toMatch(REPORT);
        expect(status, output).toBe(0);
        // A stress that did nothing proves nothing.
        const [, ...counts] =
          /connections (\d+) messages (\d+) devices (\d+) forks (\d+) executions (\d+) moves (\d+) ranges (\d+) duplicates (\d+)/.exec(
            output,
          ) ?? [];
        expect(
          counts.map(Number).every((count) => count > 0),
          output,
        ).toBe(true);
      },
      patience(SECONDS * 1000 + TEST_MS),
    );

    it(
      `ends in errors without a report when the daemon dies, ${DEATHS} times`,
      async () => {
        const prng = new Prng(SEED);
        for (let round = 0; round < DEATHS; round++) {
          const memoryTiers: ['agent' | 'process_vm'] = [round % 2 === 0 ? 'agent' : 'process_vm'];
          const daemon = await DaemonProcess.start({ memoryTiers });
          try {
            const words = ['dying', `${SEED + round}`, `${PATIENCE_MS}`];
            const program = await start(daemon, sanitizer, library, ...words);
            await program.until(/running/);
            await quiet(prng.below(DEATH_MS));
            await daemon.end('SIGKILL');
            const { status, output } = await program.end();
            expect(output).not.toMatch(REPORT);
            expect(status, output).toBe(0);
            expect(output).toMatch(/^lost: /m);
          } finally {
            await daemon.clean();
          }
        }
      },
      patience(DEATHS * TEST_MS),
    );
  });

  it('runs under valgrind without reports', async () => {
    const daemon = await DaemonProcess.start();
    onTestFinished(() => daemon.clean());
    const environment = await shimEnvironment(daemon.socketPath);
    const words = ['valgrind', '-q', '--error-exitcode=9', stress, 'leaf'];
    const ended = await new ShimProgram(words, environment).end();
    expect(ended).toMatchObject({ status: 0, output: '' });
  });

  // Each breaks the library by a change of its source, which the suite must notice.
  it.each([
    {
      fault: 'a file is used after it was freed',
      file: 'hidden-descriptor.c',
      from: 'device_file_try_ref(endpoint->file)',
      to: 'true',
      sanitizer: ADDRESS,
      // Either may notice first: the sanitizer, or the program, whose calls fail.
      report: /AddressSanitizer|: not true: /,
    },
    {
      fault: 'a greeting is written beyond its end',
      file: 'daemon-connection.c',
      from: 'memcpy(hello.token, token, TOKEN_BYTES)',
      to: 'memcpy(hello.token, token, 4 * TOKEN_BYTES)',
      sanitizer: ADDRESS,
      report: /AddressSanitizer: stack-buffer-overflow/,
    },
    {
      fault: 'an array is indexed beyond its end',
      file: 'exchange.c',
      from: 'pieces[1 + exchange->piece_count++]',
      to: 'pieces[2 + EXCHANGE_PIECES_MAX + exchange->piece_count++]',
      sanitizer: ADDRESS,
      report: /runtime error: index 12 out of bounds/,
    },
    {
      fault: 'requests are numbered without the lock',
      file: 'exchange.c',
      from: /pthread_mutex_(un)?lock\(&file->send_lock\);/g,
      to: '',
      sanitizer: THREAD,
      report: /ThreadSanitizer: data race/,
    },
  ])('reports that $fault', async ({ file, from, to, sanitizer, report }) => {
    const copy = mkdtempSync(join(directory, 'broken-'));
    cpSync(sources, copy, { recursive: true });
    const text = readFileSync(join(copy, file), 'utf8');
    const broken = text.replace(from, to);
    expect(broken, `${file} without ${from}`).not.toBe(text);
    writeFileSync(join(copy, file), broken);
    const library = build(sanitizer, copy, join(copy, 'broken.so'));
    const { status, output } = await steadily(['agent'], sanitizer, library, 10);
    expect(output).toMatch(report);
    expect(status).not.toBe(0);
  });
});
