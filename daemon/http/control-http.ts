/** Assembles the HTTP routes of the control plane. */
import { type Caller, OWNER } from '../control/operation.ts';
import type { ControlTarget } from '../control/target.ts';
import { healthRoutes } from './health-routes.ts';
import type { HttpRoute } from './http-route.ts';
import { HttpServer, type HttpServerOptions } from './http-server.ts';
import { metricsRoute } from './metrics-route.ts';
import { openApiRoute } from './openapi.ts';
import { operationRoutes } from './operation-routes.ts';
import { pageRoute } from './page-route.ts';

/**
 * The caller on a server without a token: may do everything except see secrets of other programs.
 */
const ANYONE: Caller = { mayChange: true, isOwner: false };

/** All routes, for `caller`. */
export function controlRoutes(target: ControlTarget, caller: Caller = OWNER): HttpRoute[] {
  const routes = [
    pageRoute(),
    ...healthRoutes(target),
    metricsRoute(target),
    ...operationRoutes(target, caller),
  ];
  return [...routes, openApiRoute(routes, target.version)];
}

/**
 * Serves the control plane. The token identifies the owner: a server without one does not show
 * keys, addresses and traces. Rejects like `HttpServer.listen`.
 */
export function serveControl(
  target: ControlTarget,
  options: Omit<HttpServerOptions, 'routes'>,
): Promise<HttpServer> {
  const caller = options.policy.token === undefined ? ANYONE : OWNER;
  return HttpServer.listen({ ...options, routes: controlRoutes(target, caller) });
}
