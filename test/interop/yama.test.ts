/**
 * Unmodified programs of an ordinary user on a kernel whose Yama restricts access to other processes,
 * as Ubuntu's and Fedora's do. The guest's kernel has Yama; programs, daemon and `doctor` run there.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import type { DoctorReport } from '#daemon/cli/doctor/doctor';
import { patience, TEST_MS } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { daemonEnvironment } from './kernel-peer/daemon-environment.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { ATTEMPTS, perftestWasTooSlow, untilFast } from './perftest-patience.ts';

const PORT = 7174;
const OTHER_PORT = 7175;
const HTTP_PORT = 7470;
const TEST_TIMEOUT_MS = patience(ATTEMPTS * TEST_MS);
const FOLDER = '/run/iwarpd-yama';
const SOCKET = `${FOLDER}/s`;
/** "nobody" of every distribution, without a single privilege. */
const USER = 'setpriv --reuid=65534 --regid=65534 --clear-groups';
const MAIN = join(repositoryRoot(), 'dist/daemon/cli/main.js');

let guest: Guest;
/** Sets a program of the guest up for the daemon there, as `iwarpd env` prints it. */
let exports: string;

/** Both ends of a program as scripts of the guest, under nice, since it has one processor. */
function pairOf(port: number, words: string, server: string, client: string): string {
  const [first, second] = [server, client].map(
    (end) => `${exports} exec ${USER} nice -n 19 ${words} ${end}`,
  );
  return `pair ${port} "${first}" "${second}"`;
}

const RPING = `rping -V -S 16384 -a ${GUEST_ADDRESS} -p ${PORT}`;

/** The programs that hold memory regions, queried over HTTP with only bash. */
async function holders(): Promise<ClientStatus[]> {
  const head =
    'GET /clients HTTP/1.0\\r\\nHost: localhost\\r\\nAuthorization: Bearer %s\\r\\n\\r\\n';
  const request = `printf '${head}' "$(<${SOCKET}.http-token)"`;
  const output = await guest.succeed(
    `exec 3<>/dev/tcp/127.0.0.1/${HTTP_PORT}; ${request} >&3; cat <&3`,
  );
  const clients: ClientStatus[] = JSON.parse(/^[[{].*/ms.exec(output)?.[0] ?? '[]');
  return clients.filter(({ usage }) => (usage.objects['mr'] ?? 0) > 0);
}

/** The finding of `doctor` about the kernel's call, as that user. */
async function processVmFinding() {
  const { output } = await guest.runToEnd(`${USER} node ${MAIN} doctor --json --socket ${SOCKET}`);
  const { checks }: DoctorReport = JSON.parse(output.slice(output.indexOf('{')));
  return checks.find(({ name }) => name === 'process_vm');
}

describeWith(['kernel-peer', 'perftest'], 'programs of a user under Yama', () => {
  beforeAll(async () => {
    await prepareKernelPeer();
    exports = await daemonEnvironment(SOCKET);
    guest = await startGuest();
    // In the guest's overlay the user may read files that are private on the host.
    const node = '$(readlink -f "$(command -v node)")';
    await guest.succeed(`for path in "$PWD" "${node}"; do
        while [[ $path != / ]]; do chmod o+rx "$path"; path=$(dirname "$path"); done
      done
      mkdir -m 700 ${FOLDER} && chown 65534:65534 ${FOLDER}`);
    const options = `--socket ${SOCKET} --device iw0=${GUEST_ADDRESS} --no-native`;
    const daemon = guest.run(`${USER} node ${MAIN} start ${options} --http 127.0.0.1:${HTTP_PORT}`);
    await daemon.waitFor(/ready/);
  }, GUEST_START_TIMEOUT_MS);

  afterAll(() => guest?.stop());

  describe.each([
    // In this order: the second applies doctor's advice from the first.
    {
      scope: 2,
      state: 'warn',
      says: /EPERM/,
      tier: 'agent',
      reason: /EPERM \(yama ptrace_scope=2\)/,
    },
    { scope: 1, state: 'ok', says: /scope 1/, tier: 'process_vm', reason: /readv reaches pid/ },
  ])('ptrace_scope $scope', ({ scope, state, says, tier, reason }) => {
    beforeAll(() => guest.succeed(`echo ${scope} >/proc/sys/kernel/yama/ptrace_scope`));

    it(`rping verifies the received data, by ${tier}`, async () => {
      const pings = guest.run(pairOf(PORT, RPING, '-s -C 60', '-c -C 60'));
      onTestFinished(() => pings.kill());
      // Polling faster takes the processor that the programs need to get that far.
      const patience = { interval: 700 };
      await expect.poll(async () => (await holders()).length, patience).toBe(2);
      for (const { uid, usage } of await holders()) {
        expect(uid).toBe(65534);
        expect(Object.keys(usage.tiers)).toEqual([tier]);
        expect(usage.tierReasons[tier]).toMatch(reason);
      }
      expect(await pings.exit, pings.output).toBe(0);
    });

    it(
      'ib_write_bw ends well',
      async () => {
        const words = `ib_write_bw -R -F -p ${OTHER_PORT} -s 65536 -n 40`;
        await untilFast(async () => {
          const ended = await guest.runToEnd(pairOf(OTHER_PORT, words, '', GUEST_ADDRESS));
          if (perftestWasTooSlow(ended)) return ended.output;
          expect(ended.status, ended.output).toBe(0);
          expect(ended.output).toMatch(/^client: +65536 +40 +[\d.]+ +[\d.]+/m);
          return undefined;
        });
      },
      TEST_TIMEOUT_MS,
    );

    it('doctor reports it and the possible fix', async () => {
      const finding = await processVmFinding();
      expect(finding).toMatchObject({ state, text: expect.stringMatching(says) });
      if (state === 'warn') expect(finding?.fix).toContain('sysctl kernel.yama.ptrace_scope=1');
    });
  });
});
