/** The HTTP routes of the control plane. */
import { type Operator, OWNER } from '../control/operation.ts';
import type { ControlTarget } from '../control/target.ts';
import { healthRoutes } from './health-routes.ts';
import type { HttpRoute } from './http-route.ts';
import { metricsRoute } from './metrics-route.ts';
import { openApiRoute } from './openapi.ts';
import { operationRoutes } from './operation-routes.ts';
import { pageRoute } from './page-route.ts';

export function controlRoutes(target: ControlTarget, caller: Operator = OWNER): HttpRoute[] {
  const routes = [
    pageRoute(),
    ...healthRoutes(target),
    metricsRoute(target),
    ...operationRoutes(target, caller),
  ];
  return [...routes, openApiRoute(routes, target.version)];
}
