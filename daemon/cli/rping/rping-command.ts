/** `iwarpd rping`: its options, and its RNIC. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Provider } from '#contract/verbs/provider';
import { CommandFailure, usageFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { connectDaemon } from '#verbs-api/index';
import { crcWarning, type WireArguments, wireDefaults, wireOptions } from '../arguments.ts';
import { runRpingClient } from './rping-client.ts';
import type { RpingSettings } from './rping-endpoint.ts';
import { DEFAULT_PORT, DEFAULT_SIZE_BYTES, MAX_SIZE_BYTES } from './rping-protocol.ts';
import { runRpingServer } from './rping-server.ts';

/** The options as commander passes them, under rping's letters where those exist. */
export interface RpingArguments extends WireArguments {
  readonly s?: boolean;
  readonly c?: boolean;
  readonly a?: string;
  readonly I?: string;
  readonly p?: number;
  readonly C?: number;
  readonly S?: number;
  readonly v?: boolean;
  readonly V?: boolean;
  readonly d?: boolean;
  readonly P?: boolean;
  readonly q?: boolean;
  readonly embedded?: boolean;
  readonly native?: boolean;
  readonly socket?: string;
}

/** Runs either side. CommandFailure, VerbsError, or the reason of `signal`. */
export async function runRping(
  given: RpingArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  checkRpingArguments(given);
  const settings = await settingsOf(given);
  const warning = crcWarning(settings.wire);
  if (warning !== undefined) output.note(`warning: ${warning}`);
  const provider = await openProvider(given);
  try {
    if (given.c === true) await runRpingClient(provider, settings, output, signal);
    else {
      const persistent = given.P === true;
      await runRpingServer(provider, { ...settings, persistent }, output, signal);
    }
  } finally {
    await provider.close();
  }
}

/** Throws a usage failure for contradictory options. */
export function checkRpingArguments(given: RpingArguments): void {
  if ((given.s === true) === (given.c === true)) {
    throw usageFailure('missing role: -s (server) or -c (client)');
  }
  if (given.c === true && given.a === undefined) {
    throw usageFailure('missing -a ADDRESS: the address of the server');
  }
  if (given.c === true && given.p === 0) {
    throw usageFailure(
      '-p 0 is for the server (-s), which prints the port it chose; give the client that port',
    );
  }
  if (given.c === true && given.P === true) {
    throw usageFailure('-P is for the server (-s)');
  }
  if (given.s === true && given.I !== undefined) {
    throw usageFailure('-I is for the client (-c); the address of a server is -a');
  }
  if (given.native === true) checkNativeArguments(given);
  if (given.s === true && given.embedded !== true && wireOptions(given) !== undefined) {
    throw usageFailure(
      'the wire options of a server belong to its device: give them to `iwarpd start`, or use --embedded',
    );
  }
  if (given.embedded === true && given.socket !== undefined) {
    throw usageFailure('--socket conflicts with --embedded, which uses no daemon');
  }
}

function checkNativeArguments(given: RpingArguments): void {
  if (given.embedded === true || given.socket !== undefined) {
    throw usageFailure('--native uses a real device: leave out --embedded and --socket');
  }
  if (wireOptions(given) !== undefined) {
    throw usageFailure(
      '--native leaves revision, CRC and markers to the driver of the real device',
    );
  }
}

async function settingsOf(given: RpingArguments): Promise<RpingSettings> {
  return {
    address: given.a === undefined ? '0.0.0.0' : await addressOf(given.a),
    port: given.p ?? DEFAULT_PORT,
    sourceAddress: given.I === undefined ? undefined : await addressOf(given.I),
    count: given.C ?? 0,
    // A server without a given size accepts any: that costs a buffer, and no client fails.
    sizeBytes: given.S ?? (given.s === true ? MAX_SIZE_BYTES : DEFAULT_SIZE_BYTES),
    verbose: given.v === true,
    validate: given.V === true,
    debug: given.d === true,
    ownQP: given.q === true,
    wire: wireOptions(given),
  };
}

async function addressOf(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch (error) {
    throw new CommandFailure(`cannot resolve ${host}: not an address, and no such host name`, {
      cause: error,
    });
  }
}

async function openProvider(given: RpingArguments): Promise<Provider> {
  if (given.native === true) {
    const { createNative } = await import('#verbs-api/native/native-provider');
    return await createNative();
  }
  if (given.embedded !== true) {
    return await connectDaemon(given.socket === undefined ? {} : { socketPath: given.socket });
  }
  const { createEmbedded } = await import('#daemon/embedded/embedded-provider');
  return await createEmbedded({ wire: wireDefaults(given) });
}
