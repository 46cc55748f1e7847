/** Selects the RNIC of the NFS commands. */
import type { Provider } from '#contract/verbs/provider';
import { failureCode, usageFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { connectDaemon } from '#verbs-api/index';
import { crcWarning, type WireArguments, wireDefaults, wireOptions } from '../arguments.ts';

/** The options that select the RNIC, as commander passes them. */
export interface NfsProviderArguments extends WireArguments {
  readonly embedded?: boolean;
  readonly native?: boolean;
  readonly socket?: string;
}

const NO_DAEMON = new Set(['ENODEV', 'ECONNREFUSED', 'ENOENT']);

/** The RNIC of a running daemon; one in this process if none is running, or with `--embedded`. */
export async function openNfsProvider(
  given: NfsProviderArguments,
  output: Output,
): Promise<Provider> {
  if (given.embedded === true && given.socket !== undefined) {
    throw usageFailure('--socket conflicts with --embedded, which uses no daemon');
  }
  if (given.native === true) return await openNative(given);
  const warning = crcWarning(wireOptions(given));
  if (warning !== undefined) output.note(`warning: ${warning}`);
  if (given.embedded !== true) {
    try {
      return await connectDaemon(given.socket === undefined ? {} : { socketPath: given.socket });
    } catch (error) {
      if (given.socket !== undefined || !NO_DAEMON.has(failureCode(error) ?? '')) throw error;
    }
  }
  const { createEmbedded } = await import('#daemon/embedded/embedded-provider');
  return await createEmbedded({ wire: wireDefaults(given) });
}

async function openNative(given: NfsProviderArguments): Promise<Provider> {
  if (given.embedded === true || given.socket !== undefined || wireOptions(given) !== undefined) {
    throw usageFailure(
      '--native uses a real device and its driver: leave out --embedded, --socket and wire options',
    );
  }
  const { createNative } = await import('#verbs-api/native/native-provider');
  return await createNative();
}
