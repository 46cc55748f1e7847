/** The server of rping: one client, or in persistent mode any number of them at once. */
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO, isVerbsError } from '#contract/verbs/errors';
import type { CancelSignal, CMEvent, ConnectionId, Provider } from '#contract/verbs/provider';
import { CommandFailure, failureText } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { type AcceptLimit, AcceptQueue } from '#verbs-api/accept-queue';
import { orAbort } from '#verbs-api/client/deadline';
import { RpingEndpoint, type RpingSettings } from './rping-endpoint.ts';
import { pingText, ServerSequence, type ServerStep, textSizeBytes } from './rping-protocol.ts';

/** Connect requests that may be pending, as in rdma-core's rping. */
const BACKLOG = 3;

/**
 * Serves one client until it disconnects; with `persistent` every client, until `signal` fires.
 * CommandFailure if the address cannot be listened on, or if the only client breaks off.
 */
export async function runRpingServer(
  provider: Provider,
  settings: RpingSettings & { readonly persistent: boolean },
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const listener = await provider.createId();
  try {
    await listen(listener, settings);
    // If the system chose the port, print it for the user.
    if (settings.debug || settings.port === 0) {
      const port = listener.localAddress?.port ?? settings.port;
      output.note(`listening on ${settings.address} port ${port}`);
    }
    if (settings.persistent) await servePersistently(listener, settings, output, signal);
    else await serveOne(listener, settings, output, signal);
  } finally {
    await listener.close();
  }
}

async function listen(listener: ConnectionId, settings: RpingSettings): Promise<void> {
  const { address, port } = settings;
  try {
    await listener.bindAddr({ address, port });
    await listener.listen(BACKLOG);
  } catch (error) {
    const code = isVerbsError(error) ? error.code : undefined;
    const fix =
      code === 'EADDRINUSE'
        ? '; choose another port (-p) or stop what listens there'
        : code === 'EADDRNOTAVAIL' || code === 'ENODEV'
          ? '; `iwarpd devices` shows which addresses the devices have'
          : '';
    throw new CommandFailure(
      `cannot listen on ${address} port ${port}: ${code === undefined ? failureText(error) : ERRNO[code].text}${fix}`,
      { cause: error },
    );
  }
}

async function nextRequest(listener: ConnectionId, signal: CancelSignal): Promise<CMEvent> {
  for (;;) {
    const event = await listener.nextEvent({ signal });
    if (event.type === CMEventType.connectRequest) return event;
  }
}

/** Serves the first client that connects, not the first that requests: some never confirm. */
async function serveOne(
  listener: ConnectionId,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const queue = new AcceptQueue<AcceptLimit, RpingEndpoint>({
    next: (stop) => nextRequest(listener, stop),
    accept: ({ id }, { signal: stop }) => connected(id, settings, output, stop),
  });
  const endpoint = await queue.accept({}, signal);
  await Promise.all([queue.close(), answerUntilEnd(endpoint, settings, output, signal)]);
}

async function servePersistently(
  listener: ConnectionId,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const clients = new Set<Promise<void>>();
  try {
    for (;;) {
      const { id } = await nextRequest(listener, signal);
      const peer = id.peerAddress;
      const client = serve(id, settings, output, signal)
        .catch((error: unknown) => {
          if (signal.aborted) return;
          // One client's failure must not stop the server.
          output.note(`client ${peer?.address} port ${peer?.port}: ${failureText(error)}`);
        })
        .finally(() => clients.delete(client));
      clients.add(client);
    }
  } finally {
    await Promise.all(clients);
  }
}

async function serve(
  id: ConnectionId,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const endpoint = await connected(id, settings, output, signal);
  await answerUntilEnd(endpoint, settings, output, signal);
}

/** Accepts a request; cleans up on failure. */
async function connected(
  id: ConnectionId,
  settings: RpingSettings,
  output: Output,
  signal: CancelSignal | undefined,
): Promise<RpingEndpoint> {
  let endpoint: RpingEndpoint;
  try {
    endpoint = await RpingEndpoint.create('server', id, settings, output);
  } catch (error) {
    await id.close();
    throw error;
  }
  try {
    // A client of MPA revision 1 sends no depths; with these values it can still be read.
    const accepted = id.accept({
      initiatorDepth: 1,
      responderResources: 1,
      ...(settings.ownQP ? { qp: endpoint.qp } : {}),
    });
    await orAbort(accepted, signal);
    return endpoint;
  } catch (error) {
    await endpoint.close();
    throw error;
  }
}

async function answerUntilEnd(
  endpoint: RpingEndpoint,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  try {
    try {
      await answer(endpoint, settings, output, signal);
    } finally {
      await endpoint.disconnect();
    }
  } finally {
    await endpoint.close();
  }
}

async function answer(
  endpoint: RpingEndpoint,
  settings: RpingSettings,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const sequence = new ServerSequence(settings.sizeBytes);
  let sizeBytes = 0;
  for (;;) {
    const event = await endpoint.nextEvent(signal);
    let step: ServerStep;
    switch (event.type) {
      case 'receive':
        step = sequence.handleReceive(event.bytes);
        break;
      case 'read':
        step = sequence.handleReadDone();
        break;
      case 'write':
        step = sequence.handleWriteDone();
        break;
      case 'disconnected':
        if (sequence.betweenPings) return;
        throw new CommandFailure(
          `the client disconnected during ping ${sequence.pings}${endpoint.endReason()}`,
        );
    }
    switch (step.type) {
      case 'read':
        sizeBytes = step.source.size;
        endpoint.read(step.source);
        break;
      case 'write':
        endpoint.write(step.sink, textSizeBytes(endpoint.data.buffer.subarray(0, sizeBytes)));
        break;
      case 'go-ahead':
        if (step.after === 'read' && settings.verbose) {
          const text = pingText(endpoint.data.buffer.subarray(0, sizeBytes));
          output.line(`server ping data: ${text}`);
        }
        endpoint.sendAdvert(endpoint.data);
        break;
      case 'fault':
        throw new CommandFailure(`${step.text}; is the peer an rping client?`);
    }
  }
}
