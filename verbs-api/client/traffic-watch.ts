/** Watches what passes on the daemon's connections. */
import { VerbsError } from '../contract/errors.ts';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitValueFrame,
  type Frame,
  FrameReader,
  FrameType,
  Role,
} from '../contract/ipc-frames.ts';
import { decodeValue, IpcFormatError, type IpcValue } from '../contract/ipc-value.ts';
import { parseTapRecord, type TapFilter, type TapRecord } from '../contract/tap-records.ts';
import { DaemonConnection } from './daemon-connection.ts';

/** A watch under way. */
export interface TrafficWatch {
  /** Resolves when the watch is over: undefined after `stop`, else why. */
  readonly ended: Promise<Error | undefined>;
  /** Ends it; records that were sent before still come. */
  stop(): void;
}

/** What `watchTraffic` needs. */
export interface TrafficWatchOptions {
  readonly socketPath: string;
  readonly filter: TapFilter;
  /** Takes each record; its body is borrowed. What it throws ends the watch. */
  readonly onRecord: (record: TapRecord) => void;
}

/**
 * Begins to watch the links of a daemon. Rejects with `VerbsError`: ENODEV or ECONNREFUSED without a
 * daemon, EINVAL for a filter that makes no sense.
 */
export async function watchTraffic(options: TrafficWatchOptions): Promise<TrafficWatch> {
  const connection = await DaemonConnection.open(options.socketPath, Role.tap);
  let stopped = false;
  let failure: Error | undefined;
  let begun: () => void = () => undefined;
  const begin = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let answered = false;
  const reader = new FrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => {
    if (answered) options.onRecord(parseTapRecord(frame));
    else if (frame.type !== FrameType.reply) throw refusalOf(frame);
    answered = true;
    begun();
  });
  connection.onOctets = (octets) => {
    // What came in the same read as the fault.
    if (failure !== undefined) return;
    try {
      reader.push(octets);
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
      connection.destroy();
    }
  };
  const ended = new Promise<Error | undefined>((resolve) => {
    connection.onClosed = () => {
      begun();
      resolve(failure ?? (stopped ? undefined : new VerbsError('EIO', 'the daemon is gone')));
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

function refusalOf(frame: Frame): Error {
  const value = decodeValue(frame.payload);
  const [code, text] = Array.isArray(value) ? value : [];
  if (code !== 'EINVAL' || typeof text !== 'string') throw new IpcFormatError('no answer');
  return new VerbsError(code, text);
}
