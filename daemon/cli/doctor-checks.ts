/** The checks of `iwarpd doctor`. A check changes nothing and starts no daemon. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { failureCode, failureText } from '../console/failure.ts';
import { chooseCrcEngine, ISAL } from '../host/crc-engine.ts';
import { DESCRIPTORS_MIN } from '../main/open-files.ts';
import type { Check, Finding } from './doctor-finding.ts';
import { examineRoceUdp } from './doctor-roce.ts';
import { examineSctp } from './doctor-sctp.ts';
import { examineDaemon, examineSocket, examineTrust } from './doctor-socket.ts';

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
  if (Number(version.split('.')[0]) >= NODE_MAJOR_MIN)
    return { state: 'ok', text: `Node ${version}` };
  return {
    state: 'broken',
    text: `Node ${version} is too old`,
    fix: `install Node ${NODE_MAJOR_RECOMMENDED} (${NODE_MAJOR_MIN} is the oldest that works)`,
  };
}

function examineCrc(): Finding {
  const { name, accelerated } = chooseCrcEngine();
  if (accelerated) {
    const faster = name.includes(ISAL)
      ? ''
      : `; ${ISAL} takes a fraction of the time (apt-get install libisal2)`;
    return { state: 'ok', text: `computed by native code: ${name}${faster}` };
  }
  return {
    state: 'warn',
    text: 'computed in JavaScript, about ten times slower than native code',
    fix: 'install a C++ compiler, make and python3 (apt-get install g++ make python3), then npm rebuild sse4_crc32',
  };
}

async function examineKoffi(): Promise<Finding> {
  try {
    await import('#native-bridge/libc/libc');
    return { state: 'ok', text: 'loads and finds libc.so.6' };
  } catch (error) {
    return {
      state: 'broken',
      text: `does not load: ${failureText(error)}`,
      fix: 'run npm install on this machine; iwarpd needs glibc on x86-64 or arm64',
    };
  }
}

async function examineSharedMemory(): Promise<Finding> {
  try {
    const { SharedMemory } = await import('#native-bridge/libc/shared-memory');
    const memory = SharedMemory.create('iwarpd-doctor', 4096);
    memory.view[0] = 1;
    memory.release();
    return { state: 'ok', text: 'memfd_create and mmap work: zero-copy access to allocMR buffers' };
  } catch (error) {
    return {
      state: 'broken',
      text: `memfd_create or mmap fails: ${failureText(error)}`,
      fix: 'allow memfd_create in the seccomp profile of the container, or raise its memory limit',
    };
  }
}

/** Tries to read the memory of a child process. */
async function examineProcessVm(): Promise<Finding> {
  const { ProcessMemory, yamaScope } = await import('#native-bridge/libc/process-vm');
  const child = spawn('/bin/sleep', ['10'], { stdio: 'ignore' });
  try {
    if (child.pid === undefined)
      return { state: 'info', text: 'not checked: /bin/sleep does not start' };
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
    return {
      state: 'ok',
      text: `process_vm_readv works: zero-copy access to any client memory (${allowed})`,
    };
  }
  if (scope === PTRACE_SCOPE_ADMIN) {
    return {
      state: 'warn',
      text: `refused (${refused}): ${yama} allows it to root only; the agent copies clients' own buffers`,
      fix: 'sysctl kernel.yama.ptrace_scope=1, or allocate buffers with allocMR',
    };
  }
  if (scope === PTRACE_SCOPE_NONE) {
    return {
      state: 'warn',
      text: `refused (${refused}): ${yama} forbids it to everyone; the agent copies clients' own buffers`,
      fix: 'reboot with a lower kernel.yama.ptrace_scope (scope 3 cannot be lowered), or allocate buffers with allocMR',
    };
  }
  return {
    state: 'warn',
    text: `refused (${refused}, ${yama}), probably by a seccomp profile; the agent copies clients' own buffers`,
    fix: 'run the container with --cap-add SYS_PTRACE, or allocate buffers with allocMR',
  };
}

/** A readable address of process `pid`. */
function mappedAddress(pid: number): number {
  const range = /^([0-9a-f]+)-[0-9a-f]+ r/m.exec(readFileSync(`/proc/${pid}/maps`, 'latin1'));
  return Number.parseInt(range?.[1] ?? '0', 16);
}

function examineAgent(): Finding {
  return { state: 'ok', text: 'fallback available: the client copies on request' };
}

/** Judges the limit of open files in the text of /proc/self/limits. */
export function examineOpenFiles(limits: string): Finding {
  const limit = softLimit(limits, 'Max open files');
  if (limit === undefined || limit >= OPEN_FILES_MIN) {
    return { state: 'ok', text: `${limit ?? 'unlimited'}` };
  }
  if (limit < DESCRIPTORS_MIN) {
    return {
      state: 'broken',
      text: `${limit}; the daemon needs at least ${DESCRIPTORS_MIN}`,
      fix: 'run `ulimit -n 65536` before `iwarpd start`',
    };
  }
  return {
    state: 'warn',
    text: `${limit}: limits the number of connections and clients`,
    fix: 'run `ulimit -n 65536` before `iwarpd start`',
  };
}

/** The soft limit `name` in /proc/self/limits; undefined if unlimited or missing. */
function softLimit(limits: string, name: string): number | undefined {
  const value = new RegExp(`^${name}\\s+([0-9]+|unlimited)`, 'm').exec(limits)?.[1];
  return value === undefined || value === 'unlimited' ? undefined : Number(value);
}
