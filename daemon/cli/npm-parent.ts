/**
 * Signals through npx. npm passes SIGTERM on to the shell that it runs the command in, and ends with it;
 * dash does not pass it on, so `npx iwarpd start & kill $!` would end everything but the daemon.
 * Therefore a command whose parent is that shell ends with it. SIGINT is another matter: dash keeps it
 * until its command has ended, which nothing shows to the command.
 */
import { readFileSync } from 'node:fs';

/** A script of one command: its shell waits for that command and does nothing else. */
const ONE_COMMAND = /^[^&|;<>()$`\n]+$/;
/** npm gives itself a title: `npm exec iwarpd start`. */
const NPM = /^npm |\/(?:npm|npx)(?:-cli\.js)?$/;

/** Makes this process end, in order, with the shell in which npm runs it; returns at once. */
export async function endWithNpm(environment: NodeJS.ProcessEnv): Promise<void> {
  const script = environment['npm_lifecycle_script'];
  if (script === undefined || !ONE_COMMAND.test(script)) return;
  const parent = process.ppid;
  if (!(isShellOfNpm(parent, script) || isOrphan(parent, script, environment))) return;
  // Loaded only here: most commands do not run below npm.
  const { terminateWithParent } = await import('#native-bridge/libc/parent-end');
  terminateWithParent(parent === 1 ? 0 : parent);
}

/** `sh -c SCRIPT`, started by npm. */
function isShellOfNpm(pid: number, script: string): boolean {
  const [, option, text = ''] = commandLine(pid);
  return option === '-c' && text.startsWith(script) && commandLine(parentOf(pid)).some(isNpm);
}

/** The shell of `npx iwarpd` has ended already, which cost this process its parent. */
function isOrphan(parent: number, script: string, environment: NodeJS.ProcessEnv): boolean {
  const isNpx = environment['npm_lifecycle_event'] === 'npx' && /^'?iwarpd'?$/.test(script);
  // A program of `run` inherits npm's variables, and may start daemons of its own.
  const isProgram = environment['IWARPD_SOCKET'] !== undefined;
  return parent === 1 && isNpx && !isProgram && !commandLine(1).some(isNpm);
}

function isNpm(word: string): boolean {
  return NPM.test(word);
}

/** The words with which a process was started; none if it is gone. */
function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return 0;
  }
}
