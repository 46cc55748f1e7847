/**
 * NFS over RDMA between iwarpd and Linux: its client mounts our server over siw, our client uses its
 * server. Our end is on the host with CRCs off, since QEMU re-segments the stream between the two,
 * which siw does not tolerate with CRCs; with CRCs on it runs inside the guest.
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { CommandFolder } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { BreakingProxy } from './breaking-proxy.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import {
  differences,
  mountCommand,
  nfsBytes,
  nfsCommand,
  type RunningServer,
  startServer,
} from './nfs-ends.ts';
import { dissect } from './tshark.ts';
import { dissectNfs } from './tshark-nfs.ts';

const NFS_PORT = 20049;
const MOUNT_PORT = 20048;
const MEBIBYTE = 1 << 20;

let guest: Guest;
const folder = new CommandFolder();

/** Runs a script in the guest, which must succeed, and returns its output. */
async function inGuest(script: string): Promise<string> {
  const { status, output } = await guest.runToEnd(`set -e\n${script}`);
  expect(status, output).toBe(0);
  return output;
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Bytes without short repetitions. */
function noise(count: number): Buffer {
  const bytes = Buffer.alloc(count);
  let state = 0x2545f491;
  for (let at = 0; at + 4 <= count; at += 4) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes.writeInt32LE(state | 0, at);
  }
  return bytes;
}

describeWith(['kernel-peer', 'nfs'], 'NFS over RDMA between iwarpd and Linux', () => {
  beforeAll(async () => {
    await prepareKernelPeer();
    writeFileSync(folder.file('noise'), noise(64 * MEBIBYTE));
    guest = await startGuest({ nfs: true, forwards: [NFS_PORT, MOUNT_PORT], share: folder.path });
  }, GUEST_START_TIMEOUT_MS);

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  describe("our server, the kernel's client", () => {
    let server: RunningServer;
    const mounted = '/run/ours';

    beforeAll(async () => {
      const directory = folder.file('export');
      mkdirSync(directory);
      server = await startServer(folder, directory);
      await inGuest(mountCommand(server, mounted));
    });

    afterAll(async () => {
      await inGuest(`umount ${mounted}`);
      server.command.signal('SIGTERM');
      const ended = await server.command.end();
      expect(ended.status, ended.stderr).toBe(0);
      // No procedure failed because of the server, and no connection because of the protocol.
      expect(ended.stderr).not.toMatch(/failed/);
    });

    it('is mounted over RDMA', async () => {
      expect(await inGuest('grep -A30 /run/ours /proc/self/mountstats')).toMatch(/xprt:\s+rdma/);
    });

    it('stores a source tree with cp -r and returns it unchanged', async () => {
      // A copy: the compared file must not change meanwhile.
      const source = folder.file('source');
      cpSync(join(repositoryRoot(), 'verbs-api'), source, { recursive: true });
      chmodSync(join(source, 'nfs/nfs3/constants.ts'), 0o444);
      symlinkSync('nfs/nfs3/constants.ts', join(source, 'link'));
      await inGuest(`cp -r --preserve=mode,timestamps ${source} ${mounted}/tree
        echo 3 >/proc/sys/vm/drop_caches
        diff -r --no-dereference ${source} ${mounted}/tree`);
      expect(differences(source, join(server.directory, 'tree'))).toBe('');
      expect(readdirSync(source, { recursive: true }).length).toBeGreaterThan(100);
      const times = (path: string) => lstatSync(path, { bigint: true }).mtimeNs;
      const sample = 'client/daemon-query.ts';
      expect(times(join(server.directory, 'tree', sample))).toBe(times(join(source, sample)));
    });

    it('stores 64 MiB with dd and returns them with the same checksum', async () => {
      const sum = sha256(readFileSync(folder.file('noise')));
      const output = await inGuest(`
        dd if=${folder.file('noise')} of=${mounted}/noise bs=1M conv=fsync status=none
        echo 3 >/proc/sys/vm/drop_caches
        dd if=${mounted}/noise bs=1M status=none | sha256sum`);
      expect(output).toContain(sum);
      expect(sha256(readFileSync(join(server.directory, 'noise')))).toBe(sum);
    });

    it('lists 2,000 files with ls -l, and removes all of them with rm -r', async () => {
      const many = join(server.directory, 'many');
      mkdirSync(many);
      for (let i = 0; i < 2000; i++) writeFileSync(join(many, `a-file-of-several-${i}`), `${i}`);
      const output = await inGuest(`
        ls -l ${mounted}/many | tail -n +2 | awk '{ bytes += $5; files += 1 } END { print files, bytes }'
        rm -r ${mounted}/many
        ls ${mounted}`);
      expect(output).toMatch(/^2000 6890$/m);
      expect(existsSync(many)).toBe(false);
    });

    it('makes 400 files for a client, and removes them one by one', async () => {
      const output = await inGuest(`
        mkdir ${mounted}/made && cd ${mounted}/made
        for ((i = 0; i < 400; i++)); do echo $i >$i; done
        ls | wc -l
        find . -type f -delete
        ls | wc -l`);
      expect(output).toBe('400\n0\n');
    });

    it('does what POSIX programs expect of names, links, modes and times', async () => {
      const output = await inGuest(`
        mkdir ${mounted}/posix && cd ${mounted}/posix
        echo one >a && ln a b && ln -s a c && mv a d
        stat -c '%h %s' b d; readlink c
        set -o noclobber; (echo x >d) 2>/dev/null && echo clobbered; set +o noclobber
        chmod 4711 d && touch -d '2001-02-03 04:05:06.123456789 UTC' d
        stat -c '%a %.9Y' d
        truncate -s 1000000 d && stat -c %s d && truncate -s 3 d && cat d && echo
        mkdir dir && touch dir/f && ! rmdir dir 2>/dev/null && echo kept
        exec 3<dir/f && rm dir/f && cat <&3 && exec 3<&- && rmdir dir && echo gone
        mkfifo fifo 2>&1 || true
        cat nothing 2>&1 || true
        x=$(printf '%0255d' 0); echo long >$x && cat $x
        x=$(printf '%0256d' 0); (echo long >$x) 2>&1 || true
        df --output=fstype . | tail -1`);
      const lines = output.trimEnd().split('\n');
      expect(lines.slice(0, 4)).toEqual(['2 4', '2 4', 'a', '4711 981173106.123456789']);
      expect(lines.slice(4, 9)).toEqual(['1000000', 'one', 'kept', 'gone', expect.any(String)]);
      // Linux has no text for the errno of NFS3ERR_NOTSUPP.
      expect(output).toMatch(/mkfifo: .*error 524/);
      expect(output).toMatch(/nothing: No such file/);
      expect(output).toMatch(/File name too long/);
      expect(output).toMatch(/^long$/m);
      expect(lines.at(-1)).toBe('nfs');
      expect(lstatSync(join(server.directory, 'posix/d')).mode & 0o7777).toBe(0o4711);
    });

    it('enforces file modes', async () => {
      const output = await inGuest(`
        mkdir -m 755 ${mounted}/users && cd ${mounted}/users
        echo open >open && chmod 644 open && echo secret >secret && chmod 600 secret
        mkdir -m 1777 public
        setpriv --reuid 1234 --regid 1234 --clear-groups bash -c '
          cat open 2>&1
          cat secret 2>&1
          (echo x >>open) 2>&1
          rm -f open 2>&1
          touch new 2>&1
          echo mine >public/mine && cat public/mine
          chmod 666 open 2>&1
          true'`);
      expect(output).toMatch(/^open$/m);
      expect(output).not.toMatch(/^secret$/m);
      expect(output.match(/Permission denied/g)).toHaveLength(4);
      expect(output).toMatch(/chmod: .*not permitted/);
    });

    it('sees changes made on the host', async () => {
      writeFileSync(join(server.directory, 'host'), 'first\n');
      expect(await inGuest(`cat ${mounted}/host`)).toBe('first\n');
      writeFileSync(join(server.directory, 'host'), 'second, and longer\n');
      const script = `until grep -q second ${mounted}/host; do sleep 0.5; done; cat ${mounted}/host`;
      expect((await inGuest(script)).trimEnd()).toBe('second, and longer');
    });

    it('serves two mounts at once, one of them read-only', async () => {
      const directory = folder.file('other');
      mkdirSync(directory);
      const other = await startServer(folder, directory);
      const readOnly = await startServer(folder, directory, ['--embedded', '--no-crc']);
      await inGuest(`${mountCommand(other, '/run/other')}
        ${mountCommand(readOnly, '/run/readonly')}
        fill() { for i in 1 2 3 4; do head -c 5000000 ${folder.file('noise')} >$1/part$i; done; }
        mkdir ${mounted}/parts
        fill ${mounted}/parts & first=$!
        fill /run/other & second=$!
        wait $first && wait $second`);
      expect(differences(directory, join(server.directory, 'parts'))).toBe('');
      const output = await inGuest(`cmp /run/readonly/part1 /run/other/part1 && echo same
        (echo x >/run/readonly/x) 2>&1 || true
        rm /run/readonly/part1 2>&1 || true
        umount /run/readonly /run/other`);
      expect(output).toMatch(/^same$/m);
      expect(output.match(/Read-only file system/g)).toHaveLength(2);
    });

    it('makes handles of an earlier run stale, and is mounted again', async () => {
      const directory = folder.file('restarted');
      mkdirSync(directory);
      writeFileSync(join(directory, 'f'), 'there\n');
      const first = await startServer(folder, directory);
      await inGuest(`${mountCommand(first, '/run/restarted')}; cat /run/restarted/f`);
      first.command.signal('SIGTERM');
      expect((await first.command.end()).status).toBe(0);
      const { port, mountPort } = first;
      const ports = ['--port', String(port), '--mount-port', String(mountPort)];
      const words = ['--host', '127.0.0.1', ...ports, '--embedded', '--no-crc'];
      const second = folder.start(['nfs', 'serve', directory, ...words]);
      await second.until(/^ready: /m);
      const output = await inGuest(`
        cat /run/restarted/f 2>&1 || true
        umount /run/restarted
        ${mountCommand(first, '/run/restarted')}; cat /run/restarted/f; umount /run/restarted`);
      expect(output).toMatch(/Stale file handle/);
      expect(output).toMatch(/^there$/m);
    });

    it('carries out only once a call that a client repeats on a new connection', async () => {
      const directory = folder.file('broken');
      mkdirSync(join(directory, 'many'), { recursive: true });
      for (let i = 0; i < 300; i++) writeFileSync(join(directory, 'many', `${i}`), '');
      const served = await startServer(folder, directory);
      // Amid the CREATEs, the RENAMEs and the REMOVEs.
      await using proxy = await BreakingProxy.start(served.port, [60, 200, 400]);
      const output = await inGuest(`
        ${mountCommand({ ...served, port: proxy.port }, '/run/broken')}
        cd /run/broken && mkdir made moved
        for ((i = 0; i < 50; i++)); do set -o noclobber; echo $i >made/$i; done
        for ((i = 0; i < 50; i++)); do mv made/$i moved/$i; done
        rmdir made && rm -r many && ls moved | wc -l && ls
        cd / && umount /run/broken`);
      expect(output).toBe('50\nmoved\n');
      expect(proxy.breaks).toBe(3);
    });

    it('is served over a daemon, too', async () => {
      const directory = mkdtempSync(folder.file('by-daemon-'));
      const socket = `${directory}-run/s`;
      const daemon = await folder.daemon(socket, ['--no-crc']);
      onTestFinished(async () => await daemon.kill());
      const served = await startServer(folder, directory, ['--socket', socket, '--writable']);
      await inGuest(`${mountCommand(served, '/run/daemon')}
        head -c 5000000 ${folder.file('noise')} >/run/daemon/part
        echo 3 >/proc/sys/vm/drop_caches
        cmp -n 5000000 ${folder.file('noise')} /run/daemon/part
        umount /run/daemon`);
      served.command.signal('SIGTERM');
      expect((await served.command.end()).status).toBe(0);
      daemon.signal('SIGTERM');
      expect((await daemon.end()).status).toBe(0);
    });
  });

  it("our server over the native bridge, on siw itself: the kernel's client", async () => {
    const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
    const own = { directory: '/run/native', port: 22049, mountPort: 22048 };
    const ports = `--port ${own.port} --mount-port ${own.mountPort}`;
    const output = await inGuest(`mkdir -p ${own.directory}
      coproc serve ${own.port} node ${main} nfs serve ${own.directory} --native --writable --no-root-squash --host ${GUEST_ADDRESS} ${ports}
      grep -q READY <&"\${COPROC[0]}"
      ${mountCommand(own, '/run/over-native', { host: GUEST_ADDRESS })}
      head -c 3000000 ${folder.file('noise')} >/run/over-native/part
      echo 3 >/proc/sys/vm/drop_caches
      cmp -n 3000000 ${folder.file('noise')} /run/over-native/part && echo same
      ls /run/over-native
      umount /run/over-native
      kill $COPROC_PID`);
    expect(output).toMatch(/same\npart\n$/);
  });

  describe("our client, the kernel's server", () => {
    const exported = '/run/export';
    const place = (): string[] => [
      ...['--embedded', '--no-crc', '--port', String(guest.forwarded(NFS_PORT))],
      ...['--mount-port', String(guest.forwarded(MOUNT_PORT))],
    ];
    const remote = (path: string): string => `127.0.0.1:${exported}/${path}`;

    beforeAll(async () => {
      await inGuest(`nfsd ${exported}
        mkdir ${exported}/many && cd ${exported}/many
        for ((i = 0; i < 1000; i++)); do : >a-file-with-a-name-that-is-not-short-$i; done
        printf 'hello over rdma' >${exported}/hello; ln -s hello ${exported}/link`);
    });

    it('ls: names and attributes', async () => {
      const list = await nfsCommand(folder, ['ls', remote(''), ...place()]);
      expect(list.status, list.stderr).toBe(0);
      expect(list.stdout).toBe('hello\nlink\nmany\n');
      const json = await nfsCommand(folder, ['ls', '--json', remote('hello'), ...place()]);
      expect(JSON.parse(json.stdout)).toMatchObject({
        entries: [{ type: 'file', size: 15, mode: '0644' }],
      });
      const many = await nfsCommand(folder, ['ls', remote('many'), ...place()]);
      expect(many.stdout.trimEnd().split('\n')).toHaveLength(1000);
    });

    it('put and cat: 20 MiB and a bit, there and back', async () => {
      const bytes = noise(20 * MEBIBYTE + 4321);
      writeFileSync(folder.file('up'), bytes);
      const put = await nfsCommand(folder, ['put', folder.file('up'), remote(''), ...place()]);
      expect(put.status, put.stderr).toBe(0);
      expect(await inGuest(`sha256sum <${exported}/up`)).toContain(sha256(bytes));
      await inGuest(`cp ${exported}/up ${exported}/down`);
      const cat = await nfsBytes(['cat', remote('down'), ...place()]);
      expect(sha256(cat)).toBe(sha256(bytes));
    });

    it('over the native bridge, on siw itself: ls, put and cat', async () => {
      const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
      const command = (words: string): string => `node ${main} nfs ${words} --native`;
      const place = `${GUEST_ADDRESS}:${exported}`;
      const output = await inGuest(`
        ${command(`ls ${place}/hello`)}
        head -c 1500000 ${folder.file('noise')} >/run/local
        ${command(`put /run/local ${place}/native`)}
        cmp /run/local ${exported}/native
        ${command(`cat ${place}/native`)} | cmp - /run/local && echo same`);
      expect(output).toBe(`${exported}/hello\nsame\n`);
    });

    it('reports a refusal of the server in one line', async () => {
      const none = await nfsCommand(folder, ['cat', remote('none'), ...place()]);
      expect(none.status).toBe(1);
      expect(none.stderr).toMatch(/no such file or directory \(NFS3ERR_NOENT\)\n$/);
      const link = await nfsCommand(folder, ['cat', remote('link'), ...place()]);
      expect(link.stderr).toMatch(/symbolic link, which is not followed/);
      const outside = await nfsCommand(folder, ['ls', '127.0.0.1:/etc', ...place()]);
      expect(outside.status).toBe(1);
      expect(outside.stderr).toMatch(/not exported to this host \(MNT3ERR_/);
    });
  });

  describeWith(['tshark'], 'as Wireshark reads it', () => {
    it('our server in the guest, CRC on: every call has its reply, none is malformed', async () => {
      await guest.setSiw({ crcRequired: true });
      onTestFinished(() => guest.setSiw({ crcRequired: false }));
      const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
      const pcap = folder.file('nfs.pcap');
      const own = { directory: '/run/inside', port: 21049, mountPort: 21048 };
      const serve = `node ${main} nfs serve ${own.directory} --embedded --writable --no-root-squash --host 0.0.0.0 --port ${own.port} --mount-port ${own.mountPort}`;
      await inGuest(`mkdir -p ${own.directory}
        work() {
          ${mountCommand(own, '/run/mnt', { host: GUEST_ADDRESS })}
          head -c 300000 ${folder.file('noise')} >/run/mnt/part
          echo 3 >/proc/sys/vm/drop_caches
          cmp -n 300000 ${folder.file('noise')} /run/mnt/part
          ln -s $(printf '%01500d' 0) /run/mnt/link 
          echo 3 >/proc/sys/vm/drop_caches; readlink /run/mnt/link | wc -c
          for ((i = 0; i < 40; i++)); do : >/run/mnt/a-file-with-a-name-that-is-not-short-$i; done
          ls -l /run/mnt | wc -l
          rm -r /run/mnt/*
          umount /run/mnt
        }
        coproc serve ${own.port} ${serve}
        grep -q READY <&"\${COPROC[0]}"
        export -f work
        record ${pcap} lo bash -ec work
        kill $COPROC_PID`);
      const { fpdus, crcGood } = await dissect(pcap);
      expect(crcGood).toBe(fpdus.length);
      const { calls, replies, errors, malformed, procedures } = await dissectNfs(pcap, own.port);
      expect(calls.size).toBeGreaterThan(100);
      expect(replies).toEqual(calls);
      expect(errors).toBe(0);
      const { read, write, readlink, symlink, create, remove, readdirplus } = NFS3.procedures;
      for (const { number } of [read, write, readlink, symlink, create, remove, readdirplus]) {
        expect(procedures.get(number), `procedure ${number}`).toBeGreaterThan(0);
      }
      expect(malformed.filter((procedure) => procedure !== read.number)).toEqual([]);
    });
  });
});
