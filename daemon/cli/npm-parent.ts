/**
 * Signals through npx. npm forwards SIGTERM to the shell in which it runs the command, and exits with
 * it; dash does not forward it, so `npx iwarpd start & kill $!` would end everything but the daemon.
 * Therefore a command whose parent is that shell exits with it. SIGINT differs: dash holds it back
 * until its command has ended, which the command cannot detect.
 */
import { readFileSync } from 'node:fs';

/** A script with a single command: its shell only waits for that command. */
const ONE_COMMAND = /^[^&|;<>()$`\n]+$/;
/** npm sets its own process title: `npm exec iwarpd start`. */
const NPM = /^npm |\/(?:npm|npx)(?:-cli\.js)?$/;

/** Makes this process exit, in order, with the shell in which npm runs it; returns at once. */
export async function endWithNpm(environment: NodeJS.ProcessEnv): Promise<void> {
  const script = environment['npm_lifecycle_script'];
  if (script === undefined || !ONE_COMMAND.test(script)) return;
  const parent = process.ppid;
  if (!(isShellOfNpm(parent, script) || isOrphan(parent, script, environment))) return;
  // Loaded on demand: most commands do not run under npm.
  const { terminateWithParent } = await import('#native-bridge/libc/parent-end');
  terminateWithParent(parent === 1 ? 0 : parent);
}

/** `sh -c SCRIPT`, started by npm. */
function isShellOfNpm(pid: number, script: string): boolean {
  const [, option, text = ''] = commandLine(pid);
  return option === '-c' && text.startsWith(script) && commandLine(parentOf(pid)).some(isNpm);
}

/** The shell of `npx iwarpd` has already exited, so this process has another parent. */
function isOrphan(parent: number, script: string, environment: NodeJS.ProcessEnv): boolean {
  const isNpx = environment['npm_lifecycle_event'] === 'npx' && /^'?iwarpd'?$/.test(script);
  // A program under `run` inherits npm's variables and may start daemons of its own.
  const isProgram = environment['IWARPD_SOCKET'] !== undefined;
  return parent === 1 && isNpx && !isProgram && !commandLine(1).some(isNpm);
}

function isNpm(word: string): boolean {
  return NPM.test(word);
}

/** The command line of a process; empty if it is gone. */
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
