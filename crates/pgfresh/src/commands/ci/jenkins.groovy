// Jenkinsfile, printed by pgfresh @VERSION@ for @KIND@. Adapt:
// - @NOTE@
pipeline {
    agent none
    stages {
        // A server within the stage; the cache of the agent's user carries the templates.
        stage('test') {
            agent any @CACHED@
            // Jobs of one agent share its files: what a pull request leaves there must not be signed. @SHARED@
            agent { label "${env.BRANCH_NAME == '@BRANCH@' ? 'templates' : '!templates'}" } @SHARED@
            environment {
                PGFRESH_RELEASE = '@RELEASE@'
                PGFRESH_SHA256 = 'put-the-digest-here'
                PGFRESH_POSTGRES = '@ASKED@'
                @VALUE@
            }
            steps {
                // PostgreSQL of the agent, or else downloaded by pgfresh with npm or pip.
                sh '''
                    set -eu
                    @DEPENDENCY@
                    @INSTALL@
                    pgfresh run -- @COMMAND@ @CACHED@
                '''
                // What they allow depends on the folder that this project is in. @SHARED@
                script { @SHARED@
                    def credentials = [@BINDINGS@] @SHARED@
                    if (env.BRANCH_NAME == '@BRANCH@') { @SHARED@
                        credentials.add(string(credentialsId: 'PGFRESH_SIGNING_KEY', variable: 'PGFRESH_SIGNING_KEY')) @SHARED@
                    } @SHARED@
                    withCredentials(credentials) { @SHARED@
                        sh '.pgfresh-bin/pgfresh template build' @SHARED@
                    } @SHARED@
                } @SHARED@
                // The tests do without the secrets: the template is here. @SHARED@
                sh ''' @SHARED@
                    set -eu @SHARED@
                    export PATH="$PWD/.pgfresh-bin:$PATH" @SHARED@
                    pgfresh run -- @COMMAND@ @SHARED@
                ''' @SHARED@
            }
        }
        // The same with a service container in RAM, if you prefer that. Take one of the two stages.
        stage('test with a service') {
            agent any
            steps {
                sh '''
                    set -eu
                    @DEPENDENCY@
                    server=$(docker run --detach --rm --tmpfs /data --publish 127.0.0.1::5432 \
                        --env POSTGRES_PASSWORD=postgres --env POSTGRES_INITDB_ARGS=--no-sync --env PGDATA=/data/pg \
                        postgres:@MAJOR@ -c fsync=off -c full_page_writes=off -c synchronous_commit=off)
                    trap 'docker stop --time 0 $server' EXIT
                    until docker exec $server pg_isready --quiet --host 127.0.0.1; do sleep 0.2; done
                    address=$(docker port $server 5432)
                    export DATABASE_URL=postgresql://postgres:postgres@$address/postgres
                    # The database is empty: run your migrations here.
                    @COMMAND@
                '''
            }
        }
    }
}
