/** The RNIC that the NFS commands run on. */
import type { Provider } from '../../../verbs-api/contract/provider.ts';
import { connectDaemon } from '../../../verbs-api/index.ts';
import { createEmbedded } from '../../embedded/embedded-provider.ts';
import { crcWarning, type WireArguments, wireDefaults, wireOptions } from '../arguments.ts';
import { failureCode, usageFailure } from '../failure.ts';
import type { Output } from '../output.ts';

/** The options that choose it, as commander hands them over. */
export interface NfsProviderArguments extends WireArguments {
  readonly embedded?: boolean;
  readonly native?: boolean;
  readonly socket?: string;
}

const NO_DAEMON = new Set(['ENODEV', 'ECONNREFUSED', 'ENOENT']);

/** That of a running daemon; one in this process where none runs, or `--embedded` asks for it. */
export async function openNfsProvider(
  given: NfsProviderArguments,
  output: Output,
): Promise<Provider> {
  if (given.embedded === true && given.socket !== undefined) {
    throw usageFailure('--embedded uses no daemon, so --socket makes no sense with it');
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
  return await createEmbedded({ wire: wireDefaults(given) });
}

async function openNative(given: NfsProviderArguments): Promise<Provider> {
  if (given.embedded === true || given.socket !== undefined || wireOptions(given) !== undefined) {
    throw usageFailure(
      '--native uses a real device and its driver, so --embedded, --socket and wire options make no sense with it',
    );
  }
  const { createNative } = await import('../../../native-bridge/provider/native-provider.ts');
  return await createNative();
}
