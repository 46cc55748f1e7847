/** What `iwarpd doctor` looks at. A check only looks: it changes nothing and starts nothing. */
import { spawn } from 'node:child_process';
import { existsSync, lstatSync, readFileSync, type Stats } from 'node:fs';
import { dirname } from 'node:path';
import { queryDaemon } from '../../verbs-api/client/daemon-link.ts';
import { chooseCrcEngine } from '../adapter/crc-engine.ts';
import { directoryFault } from '../ipc/socket-place.ts';
import { failureCode, failureText } from './failure.ts';

/** What a check found. */
export interface Finding {
  /** `broken`: iwarpd does not work; `warn`: it works, but worse; `info`: no judgement. */
  readonly state: 'ok' | 'warn' | 'broken' | 'info';
  readonly text: string;
  /** What to do about it. */
  readonly mend?: string;
}

/** Where to look. */
export interface Place {
  readonly socketPath: string;
}

/** One thing to look at. */
export interface Check {
  readonly name: string;
  readonly examine: (place: Place) => Finding | Promise<Finding>;
}

const NODE_MAJOR_MIN = 20;
/** A daemon with a connection for each of its clients and peers needs some hundreds. */
const OPEN_FILES_MIN = 1024;
/** Longest path that a Unix socket can have, its NUL included. */
const SOCKET_PATH_MAX_BYTES = 108;

/** Checks of the daemon and its clients, in the order in which they are shown. */
export const CHECKS: readonly Check[] = [
  { name: 'node', examine: examineNode },
  { name: 'crc32c', examine: examineCrc },
  { name: 'koffi', examine: examineKoffi },
  { name: 'shared memory', examine: examineSharedMemory },
  { name: 'process_vm', examine: examineProcessVm },
  { name: 'agent', examine: examineAgent },
  { name: 'socket', examine: examineSocket },
  { name: 'daemon', examine: examineDaemon },
  {
    name: 'open files',
    examine: () => examineOpenFiles(readFileSync('/proc/self/limits', 'utf8')),
  },
];

function examineNode(): Finding {
  return judgeNode(process.versions.node);
}

/** Judges a version of Node. */
export function judgeNode(version: string): Finding {
  if (Number(version.split('.')[0]) >= NODE_MAJOR_MIN)
    return { state: 'ok', text: `Node ${version}` };
  return {
    state: 'broken',
    text: `Node ${version} is too old`,
    mend: `install Node ${NODE_MAJOR_MIN} or later`,
  };
}

function examineCrc(): Finding {
  const { name, accelerated } = chooseCrcEngine();
  if (accelerated) return { state: 'ok', text: `computed by native code: ${name}` };
  return {
    state: 'warn',
    text: 'computed in JavaScript, an order of magnitude slower than by native code',
    mend: 'install a C++ compiler, make and python3 (apt-get install g++ make python3), then npm rebuild sse4_crc32',
  };
}

async function examineKoffi(): Promise<Finding> {
  try {
    await import('../../native-bridge/libc/libc.ts');
    return { state: 'ok', text: 'loads, and finds libc.so.6' };
  } catch (error) {
    return {
      state: 'broken',
      text: `does not load: ${failureText(error)}`,
      mend: 'run npm install on this machine; iwarpd needs glibc on x86-64 or arm64',
    };
  }
}

async function examineSharedMemory(): Promise<Finding> {
  try {
    const { SharedMemory } = await import('../../native-bridge/libc/shared-memory.ts');
    const memory = SharedMemory.create('iwarpd-doctor', 4096);
    memory.view[0] = 1;
    memory.release();
    return { state: 'ok', text: 'memfd_create and mmap work: buffers of allocMR are reached best' };
  } catch (error) {
    return {
      state: 'broken',
      text: `memfd_create or mmap fails: ${failureText(error)}`,
      mend: 'allow memfd_create in the seccomp profile of the container, or give it more memory',
    };
  }
}

/** Whether a process can read another one of the same user, tried on a child of this one. */
async function examineProcessVm(): Promise<Finding> {
  const { ProcessMemory, yamaScope } = await import('../../native-bridge/libc/process-vm.ts');
  const child = spawn('/bin/sleep', ['10'], { stdio: 'ignore' });
  try {
    if (child.pid === undefined)
      return { state: 'info', text: 'not tried: /bin/sleep does not start' };
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

/** Yama's scopes in which no process can let another one in (Documentation/admin-guide/LSM/Yama.rst). */
const PTRACE_SCOPE_ADMIN = 2;
const PTRACE_SCOPE_NONE = 3;

/** Judges an attempt to read another process: the errno name or undefined, and Yama's scope. */
export function judgeProcessVm(refused: string | undefined, scope: number | undefined): Finding {
  const yama = scope === undefined ? 'no Yama' : `ptrace_scope ${scope}`;
  if (refused === undefined) {
    const allowed = scope === 1 ? `${yama}: clients allow it by themselves` : yama;
    return { state: 'ok', text: `process_vm_readv works on any memory of a client (${allowed})` };
  }
  if (scope === PTRACE_SCOPE_ADMIN) {
    return {
      state: 'warn',
      text: `refused (${refused}): ${yama} leaves it to root; clients' own buffers go through the agent`,
      mend: 'sysctl kernel.yama.ptrace_scope=1, or use buffers of allocMR, which are shared',
    };
  }
  if (scope === PTRACE_SCOPE_NONE) {
    return {
      state: 'warn',
      text: `refused (${refused}): ${yama} forbids it to everybody; clients' own buffers go through the agent`,
      mend: 'boot with a lower kernel.yama.ptrace_scope, since this one stays until then, or use buffers of allocMR, which are shared',
    };
  }
  return {
    state: 'warn',
    text: `refused (${refused}, ${yama}), most likely by a seccomp profile; clients' own buffers go through the agent`,
    mend: 'run the container with --cap-add SYS_PTRACE, or use buffers of allocMR, which are shared',
  };
}

/** An address that process `pid` has mapped readable. */
function mappedAddress(pid: number): number {
  const range = /^([0-9a-f]+)-[0-9a-f]+ r/m.exec(readFileSync(`/proc/${pid}/maps`, 'latin1'));
  return Number.parseInt(range?.[1] ?? '0', 16);
}

function examineAgent(): Finding {
  return { state: 'ok', text: 'needs nothing: clients copy on request where all else is refused' };
}

function examineSocket({ socketPath }: Place): Finding {
  if (Buffer.byteLength(socketPath) >= SOCKET_PATH_MAX_BYTES) {
    return {
      state: 'broken',
      text: `${socketPath} is too long for a Unix socket`,
      mend: 'name a shorter path with --socket or IWARPD_SOCKET',
    };
  }
  const folder = dirname(socketPath);
  const stats = lstatSync(folder, { throwIfNoEntry: false });
  if (stats === undefined) {
    return {
      state: 'info',
      text: `${folder} is not there yet; the daemon makes it when it starts`,
    };
  }
  const finding = judgeSocketFolder(folder, stats, process.getuid?.() ?? 0);
  if (finding !== undefined) return finding;
  return existsSync(socketPath)
    ? { state: 'ok', text: `${socketPath}, where nobody else can replace it` }
    : { state: 'info', text: `${folder} is ready; no daemon has made its socket in it` };
}

/** What is wrong with the folder of the socket, or undefined when nothing is. */
export function judgeSocketFolder(
  folder: string,
  stats: Pick<Stats, 'uid' | 'mode' | 'isDirectory'>,
  uid: number,
): Finding | undefined {
  const fault = directoryFault(folder, stats, uid);
  if (fault === undefined) return undefined;
  return {
    state: 'broken',
    text: fault,
    mend: 'name a path of your own with --socket or IWARPD_SOCKET',
  };
}

async function examineDaemon({ socketPath }: Place): Promise<Finding> {
  try {
    const status = await queryDaemon('status', {}, { socketPath });
    const names = status.devices.map(({ device }) => device.name).join(', ');
    return {
      state: 'ok',
      text: `iwarpd ${status.version} runs as pid ${status.pid}, devices ${names}, CRC32C by ${status.crcEngine}`,
    };
  } catch (error) {
    const code = failureCode(error);
    if (code === 'ENODEV' || code === 'ECONNREFUSED') {
      return { state: 'info', text: `none runs at ${socketPath}`, mend: 'iwarpd start' };
    }
    return { state: 'broken', text: failureText(error), mend: 'end it and start it anew' };
  }
}

/** Judges the limit of open files in the text of /proc/self/limits. */
export function examineOpenFiles(limits: string): Finding {
  const limit = softLimit(limits, 'Max open files');
  if (limit === undefined || limit >= OPEN_FILES_MIN) {
    return { state: 'ok', text: `${limit ?? 'unlimited'}` };
  }
  return {
    state: 'warn',
    text: `${limit}, which limits connections and clients`,
    mend: 'ulimit -n 65536 before iwarpd start',
  };
}

/** The soft limit in a line of /proc/self/limits; undefined when unlimited or not told. */
function softLimit(limits: string, name: string): number | undefined {
  const value = new RegExp(`^${name}\\s+([0-9]+|unlimited)`, 'm').exec(limits)?.[1];
  return value === undefined || value === 'unlimited' ? undefined : Number(value);
}
