/** The HTTP side of the control plane, put together. */
import type { ControlTarget } from '../control/target.ts';
import { healthRoutes } from './health-routes.ts';
import type { HttpRoute } from './http-route.ts';
import { HttpServer, type HttpServerOptions } from './http-server.ts';
import { metricsRoute } from './metrics-route.ts';
import { openApiRoute } from './openapi.ts';
import { operationRoutes } from './operation-routes.ts';
import { pageRoute } from './page-route.ts';

/** Every route there is. */
export function controlRoutes(target: ControlTarget): HttpRoute[] {
  const routes = [
    pageRoute(),
    ...healthRoutes(target),
    metricsRoute(target),
    ...operationRoutes(target),
  ];
  return [...routes, openApiRoute(routes, target.status().version)];
}

/** Serves the control plane. Rejects as `HttpServer.listen` does. */
export function serveControl(
  target: ControlTarget,
  options: Omit<HttpServerOptions, 'routes'>,
): Promise<HttpServer> {
  return HttpServer.listen({ ...options, routes: controlRoutes(target) });
}
