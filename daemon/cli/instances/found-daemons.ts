/** The daemons of this user: those with a socket in the user's directory, and those of runs. */
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { type DaemonStatus, INSTANCE_NAME, socketDirectory } from '#contract/protocol/ipc-admin';
import { failureCode, failureText } from '#daemon/console/failure';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { privateFolders, socketIn } from '../run/private-folder.ts';

const SOCKET_SUFFIX = '.sock';
/** A daemon that takes longer to reply is shown as silent. */
export const ANSWER_MS = 5_000;

/** A daemon, or the remains of one. */
export interface FoundDaemon {
  /** Name of the instance; undefined for the private daemon of a run. */
  readonly name: string | undefined;
  readonly socketPath: string;
  /** 'silent': it does not reply, or not to this user. */
  readonly state: 'running' | 'dead' | 'silent';
  readonly status?: DaemonStatus;
  /** Why it does not reply. */
  readonly reason?: string;
}

/** All daemons, by name; those of runs last. */
export async function findDaemons(): Promise<FoundDaemon[]> {
  const instances = instanceSockets().map((path) => look(basename(path, SOCKET_SUFFIX), path));
  const runs = privateFolders().map((folder) => look(undefined, socketIn(folder)));
  return await Promise.all([...instances, ...runs]);
}

/** The sockets of this user's instances, some of which may have ended. */
export function instanceSockets(): string[] {
  const directory = socketDirectory({
    environment: process.env,
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  });
  try {
    return readdirSync(directory)
      .filter((name) => name.endsWith(SOCKET_SUFFIX))
      .filter((name) => INSTANCE_NAME.test(basename(name, SOCKET_SUFFIX)))
      .sort()
      .map((name) => join(directory, name));
  } catch {
    // No daemon has ever run.
    return [];
  }
}

async function look(name: string | undefined, socketPath: string): Promise<FoundDaemon> {
  try {
    const status = await queryDaemon('status', {}, { socketPath, greetingTimeoutMs: ANSWER_MS });
    return { name, socketPath, state: 'running', status };
  } catch (error) {
    const code = failureCode(error) ?? '';
    if (code === 'ETIMEDOUT')
      return { name, socketPath, state: 'silent', reason: '(not answering)' };
    const state = ['ENODEV', 'ECONNREFUSED'].includes(code) ? 'dead' : 'silent';
    return { name, socketPath, state, ...(state === 'dead' ? {} : { reason: failureText(error) }) };
  }
}
