/** The checks of `iwarpd doctor`. A check changes nothing and starts no daemon. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { failureCode, failureText } from '#daemon/console/failure';
import { chooseCrcEngine, ISAL } from '#daemon/host/crc-engine';
import { DESCRIPTORS_MIN } from '#daemon/main/open-files';
import { broken, type Check, type Finding, info, ok, warn } from './finding.ts';
import { examineRoceUdp } from './roce.ts';
import { examineSctp } from './sctp.ts';
import { examineDaemon, examineSocket, examineTrust } from './socket.ts';

const NODE_MAJOR_MIN = 20;
const NODE_MAJOR_RECOMMENDED = 24;
/** A daemon needs one descriptor per client and peer connection: a few hundred. */
const OPEN_FILES_MIN = 1024;

/** Checks of the daemon and its clients, in the order of the report. */
export const CHECKS: readonly Check[] = [
  { name: 'node', examine: examineNode },
  { name: 'crc32c', examine: examineCrc },
  { name: 'koffi', examine: examineKoffi },
  { name: 'shared memory', examine: examineSharedMemory },
  { name: 'process_vm', examine: examineProcessVm },
  { name: 'agent', examine: examineAgent },
  { name: 'socket', examine: examineSocket },
  { name: 'trust', examine: examineTrust },
  { name: 'daemon', examine: examineDaemon },
  {
    name: 'open files',
    examine: () => examineOpenFiles(readFileSync('/proc/self/limits', 'utf8')),
  },
  { name: 'roce udp', examine: examineRoceUdp },
  { name: 'sctp', examine: examineSctp },
];

function examineNode(): Finding {
  return judgeNode(process.versions.node);
}

export function judgeNode(version: string): Finding {
  if (Number(version.split('.')[0]) >= NODE_MAJOR_MIN) return ok(`Node ${version}`);
  return broken(
    `Node ${version} is too old`,
    `install Node ${NODE_MAJOR_RECOMMENDED} (${NODE_MAJOR_MIN} is the oldest that works)`,
  );
}

function examineCrc(): Finding {
  const { name, accelerated } = chooseCrcEngine();
  if (accelerated) {
    const faster = name.includes(ISAL)
      ? ''
      : `; ${ISAL} takes a fraction of the time (apt-get install libisal2)`;
    return ok(`computed by native code: ${name}${faster}`);
  }
  return warn(
    'computed in JavaScript, about ten times slower than native code',
    'install a C++ compiler, make and python3 (apt-get install g++ make python3), then npm rebuild sse4_crc32',
  );
}

async function examineKoffi(): Promise<Finding> {
  try {
    await import('#native-bridge/libc/libc');
    return ok('loads and finds libc.so.6');
  } catch (error) {
    return broken(
      `does not load: ${failureText(error)}`,
      'run npm install on this machine; iwarpd needs glibc on x86-64 or arm64',
    );
  }
}

async function examineSharedMemory(): Promise<Finding> {
  try {
    const { SharedMemory } = await import('#native-bridge/libc/shared-memory');
    const memory = SharedMemory.create('iwarpd-doctor', 4096);
    memory.view[0] = 1;
    memory.release();
    return ok('memfd_create and mmap work: zero-copy access to allocMR buffers');
  } catch (error) {
    return broken(
      `memfd_create or mmap fails: ${failureText(error)}`,
      'allow memfd_create in the seccomp profile of the container, or raise its memory limit',
    );
  }
}

/** Tries to read the memory of a child process. */
async function examineProcessVm(): Promise<Finding> {
  const { ProcessMemory, yamaScope } = await import('#native-bridge/libc/process-vm');
  const child = spawn('/bin/sleep', ['10'], { stdio: 'ignore' });
  try {
    if (child.pid === undefined) return info('not checked: /bin/sleep does not start');
    const memory = new ProcessMemory(child.pid);
    const refused = memory.probe(mappedAddress(child.pid), 1);
    memory.close();
    return judgeProcessVm(refused, yamaScope());
  } catch (error) {
    return judgeProcessVm(failureCode(error) ?? failureText(error), yamaScope());
  } finally {
    child.kill('SIGKILL');
  }
}

/** Scopes of Yama in which no process can grant access to its memory (admin-guide/LSM/Yama.rst). */
const PTRACE_SCOPE_ADMIN = 2;
const PTRACE_SCOPE_NONE = 3;

/** Judges an attempt to read another process: the errno name or undefined, and Yama's scope. */
export function judgeProcessVm(refused: string | undefined, scope: number | undefined): Finding {
  const yama = scope === undefined ? 'no Yama' : `ptrace_scope ${scope}`;
  if (refused === undefined) {
    const allowed = scope === 1 ? `${yama}: clients allow it themselves` : yama;
    return ok(`process_vm_readv works: zero-copy access to any client memory (${allowed})`);
  }
  if (scope === PTRACE_SCOPE_ADMIN) {
    return warn(
      `refused (${refused}): ${yama} allows it to root only; the agent copies clients' own buffers`,
      'sysctl kernel.yama.ptrace_scope=1, or allocate buffers with allocMR',
    );
  }
  if (scope === PTRACE_SCOPE_NONE) {
    return warn(
      `refused (${refused}): ${yama} forbids it to everyone; the agent copies clients' own buffers`,
      'reboot with a lower kernel.yama.ptrace_scope (scope 3 cannot be lowered), or allocate buffers with allocMR',
    );
  }
  return warn(
    `refused (${refused}, ${yama}), probably by a seccomp profile; the agent copies clients' own buffers`,
    'run the container with --cap-add SYS_PTRACE, or allocate buffers with allocMR',
  );
}

/** A readable address of process `pid`. */
function mappedAddress(pid: number): number {
  const range = /^([0-9a-f]+)-[0-9a-f]+ r/m.exec(readFileSync(`/proc/${pid}/maps`, 'latin1'));
  return Number.parseInt(range?.[1] ?? '0', 16);
}

function examineAgent(): Finding {
  return ok('fallback available: the client copies on request');
}

/** Judges the limit of open files in the text of /proc/self/limits. */
export function examineOpenFiles(limits: string): Finding {
  const limit = softLimit(limits, 'Max open files');
  if (limit === undefined || limit >= OPEN_FILES_MIN) return ok(`${limit ?? 'unlimited'}`);
  if (limit < DESCRIPTORS_MIN) {
    return broken(
      `${limit}; the daemon needs at least ${DESCRIPTORS_MIN}`,
      'run `ulimit -n 65536` before `iwarpd start`',
    );
  }
  return warn(
    `${limit}: limits the number of connections and clients`,
    'run `ulimit -n 65536` before `iwarpd start`',
  );
}

/** The soft limit `name` in /proc/self/limits; undefined if unlimited or missing. */
function softLimit(limits: string, name: string): number | undefined {
  const value = new RegExp(`^${name}\\s+([0-9]+|unlimited)`, 'm').exec(limits)?.[1];
  return value === undefined || value === 'unlimited' ? undefined : Number(value);
}
