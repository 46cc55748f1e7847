/** Finds the route of a request. */
import findMyWay from 'find-my-way';
import type { HttpRoute } from './http-route.ts';

const METHODS = ['GET', 'POST', 'DELETE'] as const;

/** A route, and the values of the parameters in its path. */
export interface FoundRoute {
  readonly route: HttpRoute;
  readonly params: Readonly<Record<string, string>>;
}

export class HttpRouter {
  readonly #router = findMyWay({ maxParamLength: 128 });

  constructor(routes: readonly HttpRoute[]) {
    for (const route of routes) {
      this.#router.on(route.method, route.path, () => undefined, route);
    }
  }

  /** The route of a method and a path; HEAD is served by the route of GET. */
  find(method: string, path: string): FoundRoute | undefined {
    const served = method === 'HEAD' ? 'GET' : method;
    const known = METHODS.find((one) => one === served);
    if (known === undefined) return undefined;
    const found = this.#router.find(known, path);
    if (found === null) return undefined;
    return { route: found.store as HttpRoute, params: found.params as Record<string, string> };
  }

  methodsOf(path: string): readonly string[] {
    return METHODS.filter((method) => this.#router.find(method, path) !== null);
  }
}
