/** Watches traffic on the daemon's connections. */
import {
  DAEMON_FRAME_MAX_BYTES,
  emitValueFrame,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
  Role,
} from '#contract/protocol/ipc-frames';
import { decodeValue, IpcFormatError, type IpcValue } from '#contract/protocol/ipc-value';
import { parseTapRecord, type TapFilter, type TapRecord } from '#contract/protocol/tap-records';
import { VerbsError } from '#contract/verbs/errors';
import { DaemonConnection } from './daemon-connection.ts';
import type { DaemonTrust } from './daemon-trust.ts';

interface TrafficWatch {
  /** Resolves when the watch has ended: undefined after `stop`, otherwise the error. */
  readonly ended: Promise<Error | undefined>;
  /** Ends it; records that were already sent still arrive. */
  stop(): void;
}

interface TrafficWatchOptions extends DaemonTrust {
  readonly socketPath: string;
  readonly filter: TapFilter;
  /** Receives each record; its body is borrowed. An error that it throws ends the watch. */
  readonly onRecord: (record: TapRecord) => void;
}

/**
 * Starts to watch the links of a daemon. Rejects with `VerbsError`: ENODEV or ECONNREFUSED if no
 * daemon is running, EACCES for a daemon of another user, EINVAL for an invalid filter.
 */
export async function watchTraffic(options: TrafficWatchOptions): Promise<TrafficWatch> {
  const { socketPath: path, allowDaemonUid } = options;
  const connection = await DaemonConnection.open({ path, allowDaemonUid }, Role.tap);
  let stopped = false;
  let failure: Error | undefined;
  let begun: () => void = () => undefined;
  const begin = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let answered = false;
  const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => {
    if (answered) options.onRecord(parseTapRecord(frame));
    else if (frame.type !== FrameType.reply) throw refusalOf(frame);
    answered = true;
    begun();
  });
  connection.onBytes = (bytes) => {
    // Arrived in the same read as the failure.
    if (failure !== undefined) return;
    try {
      reader.push(bytes);
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      connection.destroy();
    }
  };
  const ended = new Promise<Error | undefined>((resolve) => {
    connection.onClosed = () => {
      begun();
      resolve(
        failure ??
          (stopped
            ? undefined
            : new VerbsError('EIO', 'the daemon ended or closed the connection')),
      );
    };
  });
  const filter = options.filter as unknown as IpcValue;
  connection.write(emitValueFrame(FrameType.request, 1, filter));
  await begin;
  if (failure !== undefined) throw failure;
  const stop = (): void => {
    stopped = true;
    connection.end();
  };
  return { ended, stop };
}

function refusalOf(frame: IpcFrame): Error {
  const value = decodeValue(frame.payload);
  const [code, text] = Array.isArray(value) ? value : [];
  if (code !== 'EINVAL' || typeof text !== 'string') throw new IpcFormatError('no answer');
  return new VerbsError(code, text);
}
