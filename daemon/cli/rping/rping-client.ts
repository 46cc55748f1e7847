/** The client of rping: connects, pings, and checks the returned data. */
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { isVerbsError } from '#contract/verbs/errors';
import type { ConnectionId, Provider } from '#contract/verbs/provider';
import { CommandFailure, failureText, untilAborted } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { RpingEndpoint, type RpingSettings } from './rping-endpoint.ts';
import {
  ClientSequence,
  type ClientStep,
  fillPing,
  firstDifference,
  pingText,
} from './rping-protocol.ts';

/** Timeout for an address or a route, as in rdma-core's rping. */
const RESOLVE_TIMEOUT_MS = 2000;
/**
 * A kernel peer of revision 1 reports an ORD of 0 to its program, and rdma-core's rping uses it.
 */
const REVISION_1_HINT =
  "; rdma-core's rping cannot serve MPA revision 1, which negotiates no read depth; use revision 2";

/**
 * Pings the server `settings.count` times and disconnects. CommandFailure if the server is
 * unreachable, violates the protocol, or disconnects before the last ping; rejects with the reason of
 * `signal` when it fires.
 */
export async function runRpingClient(
  provider: Provider,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const id = await provider.createId();
  let endpoint: RpingEndpoint;
  try {
    await resolve(id, settings);
    endpoint = await RpingEndpoint.create('client', id, settings, output);
  } catch (error) {
    await id.close();
    throw error;
  }
  try {
    await untilAborted(connect(id, endpoint, settings), signal);
    try {
      await ping(endpoint, settings, output, signal);
    } finally {
      await endpoint.disconnect();
    }
  } finally {
    await endpoint.close();
  }
}

async function resolve(id: ConnectionId, settings: RpingSettings): Promise<void> {
  const { address, port, sourceAddress } = settings;
  try {
    await id.resolveAddr(
      { address, port },
      {
        timeoutMs: RESOLVE_TIMEOUT_MS,
        ...(sourceAddress === undefined ? {} : { source: { address: sourceAddress, port: 0 } }),
      },
    );
    await id.resolveRoute(RESOLVE_TIMEOUT_MS);
  } catch (error) {
    const from = sourceAddress === undefined ? '' : ` from ${sourceAddress}`;
    throw new CommandFailure(
      `no route to ${address}${from}: ${failureText(error)}; \`iwarpd devices\` shows the addresses of the devices`,
      { cause: error },
    );
  }
}

async function connect(
  id: ConnectionId,
  endpoint: RpingEndpoint,
  settings: RpingSettings,
): Promise<void> {
  const { wire, ownQP } = settings;
  try {
    await id.connect({
      initiatorDepth: 1,
      responderResources: 1,
      ...(ownQP ? { qp: endpoint.qp } : {}),
      ...(wire === undefined ? {} : { wire }),
    });
  } catch (error) {
    throw new CommandFailure(
      `cannot connect to ${settings.address} port ${settings.port}: ${connectFix(error)}`,
      { cause: error },
    );
  }
}

function connectFix(error: unknown): string {
  if (!isVerbsError(error)) return failureText(error);
  const rejected = error instanceof ConnectionRejectedError;
  const text = rejected ? error.event.text : failureText(error);
  switch (rejected ? error.event.error : error.code) {
    case 'ECONNREFUSED':
      return `${text}; start the server first: \`iwarpd rping -s\``;
    case 'ECONNRESET':
      return `${text}; the server's wire options (revision, CRC, markers) may not match`;
    case 'ETIMEDOUT':
      return `${text}; check that an iWARP server listens there`;
    default:
      return text;
  }
}

async function ping(
  endpoint: RpingEndpoint,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const sequence = new ClientSequence(settings.count);
  const hint = settings.wire?.mpaRevision === 1 ? REVISION_1_HINT : '';
  let step: ClientStep = sequence.next();
  for (;;) {
    switch (step.type) {
      case 'advertise-source':
        fillPing(endpoint.source.buffer, step.ping);
        endpoint.sendAdvert(endpoint.source);
        step = await nextStep(endpoint, sequence, hint, signal);
        break;
      case 'advertise-sink':
        endpoint.sendAdvert(endpoint.data);
        step = await nextStep(endpoint, sequence, hint, signal);
        break;
      case 'pong':
        if (settings.validate) validate(endpoint, step.ping);
        if (settings.verbose) output.line(`ping data: ${pingText(endpoint.data.buffer)}`);
        step = sequence.next();
        break;
      case 'fault':
        throw new CommandFailure(`${step.text}; is the peer an rping server?`);
      case 'done':
        return;
    }
  }
}

async function nextStep(
  endpoint: RpingEndpoint,
  sequence: ClientSequence,
  hint: string,
  signal: AbortSignal,
): Promise<ClientStep> {
  const event = await endpoint.nextEvent(signal);
  if (event.type === 'receive') return sequence.handleReceive(event.bytes.length);
  throw new CommandFailure(
    `the server disconnected during ping ${sequence.pings}${endpoint.endReason()}${hint}`,
  );
}

function validate(endpoint: RpingEndpoint, ping: number): void {
  const index = firstDifference(endpoint.source.buffer, endpoint.data.buffer);
  if (index === undefined) return;
  throw new CommandFailure(
    `data mismatch in ping ${ping}: byte ${index} came back as ${endpoint.data.buffer[index]} instead of ${endpoint.source.buffer[index]}`,
  );
}
