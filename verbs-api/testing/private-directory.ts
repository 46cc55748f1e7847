/** How a private daemon receives the path of its directory. */

/** Environment variable with the directory that is removed with the daemon. */
export const DIRECTORY_VARIABLE = 'IWARPD_PRIVATE_DIRECTORY';
