/** Serves the control plane over HTTP. */
import { type Operator, OWNER } from '../control/operation.ts';
import type { ControlTarget } from '../control/target.ts';
import { HttpServer, type HttpServerOptions } from './http-server.ts';

/**
 * The caller on a server without a token: may do everything except see secrets of other programs.
 */
const ANYONE: Operator = { mayChange: true, isOwner: false };

/**
 * Serves the control plane. The token identifies the owner: a server without one does not show
 * keys, addresses and traces. Rejects like `HttpServer.listen`.
 */
export function serveControl(
  target: ControlTarget,
  options: Omit<HttpServerOptions, 'routes'>,
): Promise<HttpServer> {
  const caller = options.policy.token === undefined ? ANYONE : OWNER;
  return HttpServer.listen({
    ...options,
    // Loaded once the daemon is ready, or by the first request.
    routes: async () => (await import('./control-routes.ts')).controlRoutes(target, caller),
  });
}
