/** `run --mount-sysfs`: static programs, which preload nothing, read the devices' files in /sys. */
import { spawnSync } from 'node:child_process';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runCommand } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import {
  ALICE,
  TwoUsers,
  twoUsersObstacle,
  userNamespaceObstacle,
} from './two-users/user-process.ts';

const RUN = ['run', '--fresh', '--rails', '2', '--mount-sysfs', '--'];
/** Rights of root that it lacks in containers. */
const FEW = ['setpriv', '--bounding-set=-sys_admin', '--inh-caps=-sys_admin'];

const root = process.getuid?.() === 0;
const own = root ? ['--mount'] : ['--mount', '--map-root-user'];
const obstacle =
  spawnSync('unshare', [...own, 'true']).status === 0 ? '' : ': this user may not mount';
const other = twoUsersObstacle() || userNamespaceObstacle();

/** Prints what a static program reads. */
const READ = `
  ls /sys/class/infiniband
  cat /sys/class/infiniband/roce1/device/vendor /sys/class/net/lo/type
  readlink -f /sys/class/infiniband/roce1/device
  ls -d /sys/kernel /sys/bus/pci/devices
  id -u`;
const FOUND =
  /^roce0\nroce1\n0x6977\n772\n\/sys\/devices\/pci[\da-f:/.]+\n\/sys\/bus\/pci\/devices\n\/sys\/kernel\n(\d+)\n$/;

describeWith(['static-programs'], 'a static program', () => {
  describe.runIf(obstacle === '')(`under run --mount-sysfs${obstacle}`, () => {
    it('sees the rails beside the files of the machine, and changes nothing', async () => {
      const { stdout, stderr } = await runCommand([...RUN, 'busybox', 'sh', '-c', READ]);
      expect(FOUND.exec(stdout)?.[1], stdout + stderr).toBe(`${process.getuid?.()}`);
      expect(stderr).toMatch(/statically linked.*; it will see the emulated devices in \/sys only/);
      for (const path of ['/sys/mine', '/sys/class/infiniband/roce0/node_guid']) {
        const write = await runCommand([...RUN, 'busybox', 'sh', '-c', `echo 1 >${path}`]);
        expect(write.status).not.toBe(0);
        expect(write.stderr).toMatch(/Read-only file system/);
      }
    });

    it('counts what programs beside it send', async () => {
      const counter = '/sys/class/infiniband/roce0/ports/1/hw_counters/sent_pkts';
      // A client may end before it sees that its last ping was answered, and then fails.
      const script = `rping -s -P -a 127.0.0.2 & server=$!
        until rping -c -a 127.0.0.2 -C 2; do sleep 0.1; done
        until [ $(busybox cat ${counter}) -gt 0 ]; do sleep 0.1; done
        kill $server`;
      const { status, stderr } = await runCommand([...RUN, 'sh', '-c', script]);
      expect(status, stderr).toBe(0);
    });
  });

  it.runIf(other === '')(`sees them as a user who is not root${other}`, async () => {
    const users = new TwoUsers();
    onTestFinished(() => users.clean());
    const { stdout, stderr } = await users
      .iwarpd(ALICE, [...RUN, 'busybox', 'sh', '-c', READ])
      .end();
    expect(FOUND.exec(stdout)?.[1], stdout + stderr).toBe(`${ALICE}`);
  });

  it.runIf(root)(
    `is not started where mounts are refused${root ? '' : ' (needs root)'}`,
    async () => {
      const { status, stdout, stderr } = await runCommand([...RUN, 'busybox', 'id'], {}, FEW);
      expect(status).toBe(1);
      expect(stdout).toBe('');
      expect(stderr).toMatch(
        /^iwarpd: cannot mount the devices' files in \/sys: .*not permitted; --mount-sysfs needs /m,
      );
    },
  );
});
