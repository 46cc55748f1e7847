import { describe } from 'vitest';
import type { ProviderFixture } from '../support/provider-fixture.ts';
import { awaitedSuite } from './awaited.ts';
import { connectionSuite } from './connections.ts';
import { faultSuite } from './faults.ts';
import { notificationSuite } from './notifications.ts';
import { objectSuite } from './objects.ts';
import { transferSuite } from './transfers.ts';

/** Everything that every provider must do in the same way. */
export function complianceSuite(name: string, fixture: ProviderFixture): void {
  describe(`${name}: objects`, () => objectSuite(fixture));
  describe(`${name}: connections`, () => connectionSuite(fixture));
  describe(`${name}: transfers`, () => transferSuite(fixture));
  describe(`${name}: notifications`, () => notificationSuite(fixture));
  describe(`${name}: awaited operations`, () => awaitedSuite(fixture));
  describe(`${name}: faults`, () => faultSuite(fixture));
}
